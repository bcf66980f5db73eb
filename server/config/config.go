package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"time"
)

// Config is every setting. Field tags name the key in the file; the environment
// variable is ATHANOR_ and the key in capitals, with dots and dashes as "_".
type Config struct {
	Data         string   `toml:"data"`          // data directory
	Listen       string   `toml:"listen"`        // host:port
	ONNXRuntime  string   `toml:"onnxruntime"`   // folder of another ONNX Runtime build
	TLSCert      string   `toml:"tls-cert"`      // PEM file
	TLSKey       string   `toml:"tls-key"`       // PEM file
	LogLevel     string   `toml:"log-level"`     // debug, info, warn or error
	LogFormat    string   `toml:"log-format"`    // text or json
	Threads      int      `toml:"threads"`       // per worker, 0 = physical cores
	KVMemory     Bytes    `toml:"kv-memory"`     // key/value cache per model, 0 = default
	Memory       Bytes    `toml:"memory"`        // that one worker may use, 0 = no limit
	TrainingJobs int      `toml:"training-jobs"` // fine-tuning jobs that train at the same time
	KeepAlive    Duration `toml:"keep-alive"`    // an idle model stays loaded so long, 0 = always
	Drain        Duration `toml:"drain"`         // how long a shutdown may wait for running requests
	AllowEgress  []string `toml:"allow-egress"`  // hosts that may be connected to; see package egress
	Hub          string   `toml:"hub"`           // base URL of the model hub or of a mirror
	S3           S3       `toml:"s3"`
}

// S3 configures the object store; the zero value means a local directory.
type S3 struct {
	Endpoint  string `toml:"endpoint"` // host:port
	Bucket    string `toml:"bucket"`
	Prefix    string `toml:"prefix"`
	Region    string `toml:"region"`
	AccessKey string `toml:"access-key"`
	SecretKey string `toml:"secret-key"`
	Insecure  bool   `toml:"insecure"` // plain HTTP
}

// Duration is a time.Duration written as text, like "30m".
type Duration time.Duration

// UnmarshalText reads the notation of time.ParseDuration.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// Default is the configuration of a fresh machine.
func Default() Config {
	return Config{
		Data: "athanor-data", Listen: "127.0.0.1:8080", LogLevel: "info", LogFormat: "text",
		Hub:       "https://huggingface.co",
		KeepAlive: Duration(30 * time.Minute), Drain: Duration(20 * time.Second), TrainingJobs: 1,
	}
}

// Validate checks the settings together; errors name the setting.
func (c Config) Validate() error {
	if c.Data == "" {
		return errors.New("data: a data directory is required")
	}
	if err := validateListen(c.Listen); err != nil {
		return err
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return errors.New("tls-cert and tls-key: give both or neither")
	}
	if _, err := c.Level(); err != nil {
		return err
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		return fmt.Errorf("log-format: must be text or json, got %q", c.LogFormat)
	}
	if c.Threads < 0 || c.Threads > 1024 {
		return fmt.Errorf("threads: must be between 0 and 1024, got %d", c.Threads)
	}
	if c.TrainingJobs < 1 || c.TrainingJobs > 64 {
		return fmt.Errorf("training-jobs: must be between 1 and 64, got %d", c.TrainingJobs)
	}
	if c.KVMemory < 0 || c.Memory < 0 || c.KeepAlive < 0 || c.Drain < 0 {
		return errors.New("kv-memory, memory, keep-alive and drain must not be negative")
	}
	if u, err := url.Parse(c.Hub); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return errors.New("hub: must be a URL like https://huggingface.co, without a user and a query")
	}
	return c.S3.validate()
}

// validateListen looks a port up as the listener will, before anything is made
// on disk.
func validateListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("listen: %q is not host:port", address)
	}
	if _, err := net.DefaultResolver.LookupPort(context.Background(), "tcp", port); err != nil {
		return fmt.Errorf("listen: %q is not a port between 0 and 65535", port)
	}
	return nil
}

// validate refuses half a configuration: artifacts must not lie in a local
// directory because one line is missing.
func (s S3) validate() error {
	if s == (S3{}) {
		return nil
	}
	if s.Endpoint == "" || s.Bucket == "" || s.AccessKey == "" || s.SecretKey == "" {
		return errors.New("s3: endpoint, bucket, access-key and secret-key are needed together")
	}
	return nil
}

// Level is the log level.
func (c Config) Level() (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return l, fmt.Errorf("log-level: must be debug, info, warn or error, got %q", c.LogLevel)
	}
	return l, nil
}

// Folders and files of the data directory.

// Database is the bbolt file.
func (c Config) Database() string { return filepath.Join(c.Data, "athanor.db") }

// Objects holds artifacts when no S3 is configured.
func (c Config) Objects() string { return filepath.Join(c.Data, "objects") }

// Cache holds derived files; it is safe to delete while nothing runs.
func (c Config) Cache() string { return filepath.Join(c.Data, "cache") }

// Run holds sockets.
func (c Config) Run() string { return filepath.Join(c.Data, "run") }

// AdminSocket is where the command line speaks to a running server.
func (c Config) AdminSocket() string { return filepath.Join(c.Run(), "admin.sock") }
