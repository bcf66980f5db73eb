package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// Load starts from Default and applies the file, when path is not "", and the
// environment. Unknown keys in the file are errors.
func Load(path string) (Config, error) {
	c := Default()
	if path == "" {
		path = os.Getenv("ATHANOR_CONFIG")
	}
	if path != "" {
		if err := c.readFile(path); err != nil {
			return c, err
		}
	}
	return c, c.readEnv(os.LookupEnv)
}

func (c *Config) readFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	if info.Size() > maxFile {
		return fmt.Errorf("configuration file %s: %d bytes is more than the limit of %d", path, info.Size(), maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	dec := toml.NewDecoder(strings.NewReader(string(data))).DisallowUnknownFields()
	if err := dec.Decode(c); err != nil {
		var strict *toml.StrictMissingError
		if errors.As(err, &strict) {
			return fmt.Errorf("configuration file %s has unknown keys:\n%s", path, strict.String())
		}
		var at *toml.DecodeError
		if errors.As(err, &at) {
			return fmt.Errorf("configuration file %s: %w:\n%s", path, err, at.String())
		}
		return fmt.Errorf("configuration file %s: %w", path, err)
	}
	return nil
}

// readEnv applies ATHANOR_* variables.
func (c *Config) readEnv(lookup func(string) (string, bool)) error {
	for key, set := range c.settings() {
		name := "ATHANOR_" + strings.NewReplacer("-", "_", ".", "_").Replace(strings.ToUpper(key))
		if v, ok := lookup(name); ok {
			if err := set(v); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

func (c *Config) settings() map[string]func(string) error {
	return map[string]func(string) error{
		"data": text(&c.Data), "listen": text(&c.Listen), "onnxruntime": text(&c.ONNXRuntime),
		"tls-cert": text(&c.TLSCert), "tls-key": text(&c.TLSKey),
		"log-level": text(&c.LogLevel), "log-format": text(&c.LogFormat),
		"threads": number(&c.Threads), "kv-memory": size(&c.KVMemory), "memory": size(&c.Memory), "training-jobs": number(&c.TrainingJobs),
		"keep-alive": duration(&c.KeepAlive), "drain": duration(&c.Drain),
		"allow-egress": list(&c.AllowEgress), "hub": text(&c.Hub),
		"s3.endpoint": text(&c.S3.Endpoint), "s3.bucket": text(&c.S3.Bucket), "s3.prefix": text(&c.S3.Prefix),
		"s3.region": text(&c.S3.Region), "s3.access-key": text(&c.S3.AccessKey), "s3.secret-key": text(&c.S3.SecretKey),
		"s3.insecure": flag(&c.S3.Insecure),
	}
}

func text(p *string) func(string) error {
	return func(v string) error { *p = v; return nil }
}

// list reads items with commas between them; nothing is an empty list.
func list(p *[]string) func(string) error {
	return func(v string) error {
		*p = nil
		for item := range strings.SplitSeq(v, ",") {
			if item = strings.TrimSpace(item); item != "" {
				*p = append(*p, item)
			}
		}
		return nil
	}
}

func number(p *int) func(string) error {
	return func(v string) error {
		n, err := strconv.Atoi(v)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", v)
		}
		*p = n
		return nil
	}
}

func size(p *Bytes) func(string) error { return p.Set }

func duration(p *Duration) func(string) error {
	return func(v string) error { return p.UnmarshalText([]byte(v)) }
}

func flag(p *bool) func(string) error {
	return func(v string) (err error) {
		if *p, err = strconv.ParseBool(v); err != nil {
			return fmt.Errorf("%q is not true or false", v)
		}
		return nil
	}
}

// WorkerEnv is the environment for workers: this process's without our own
// settings, which may hold secrets.
func WorkerEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "ATHANOR_") })
}

// EnsureData makes the data directory, closed to other users.
func (c Config) EnsureData() error {
	for _, dir := range []string{c.Data, c.Objects(), c.Cache(), c.Run()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
	}
	return nil
}
