package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "athanor.toml")
	write(t, file, "listen = \"0.0.0.0:1\"\nlog-level = \"warn\"\nkeep-alive = \"5m\"\n[s3]\nbucket = \"b\"\n")
	t.Setenv("ATHANOR_LISTEN", "127.0.0.1:2")
	t.Setenv("ATHANOR_S3_ACCESS_KEY", "from-env")
	c, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:2" {
		t.Errorf("the environment must win over the file, got listen %q", c.Listen)
	}
	if c.LogLevel != "warn" || c.KeepAlive != Duration(5*time.Minute) || c.S3.Bucket != "b" || c.S3.AccessKey != "from-env" {
		t.Errorf("file and environment are not both applied: %+v", c)
	}
	if c.LogFormat != Default().LogFormat {
		t.Errorf("the default is lost: %q", c.LogFormat)
	}
}

func TestLists(t *testing.T) {
	file := filepath.Join(t.TempDir(), "athanor.toml")
	write(t, file, "allow-egress = [\"a.example\", \"b.example:80\"]\n")
	c, err := Load(file)
	if err != nil || !slices.Equal(c.AllowEgress, []string{"a.example", "b.example:80"}) {
		t.Errorf("got %q, %v", c.AllowEgress, err)
	}
	t.Setenv("ATHANOR_ALLOW_EGRESS", " c.example, *.d.example:443 ,")
	if c, err = Load(file); err != nil || !slices.Equal(c.AllowEgress, []string{"c.example", "*.d.example:443"}) {
		t.Errorf("got %q, %v", c.AllowEgress, err)
	}
	t.Setenv("ATHANOR_ALLOW_EGRESS", "")
	if c, err = Load(file); err != nil || len(c.AllowEgress) != 0 {
		t.Errorf("the environment cannot empty the list: %q, %v", c.AllowEgress, err)
	}
}

func TestWorkersGetNoSettings(t *testing.T) {
	t.Setenv("ATHANOR_S3_SECRET_KEY", "secret")
	t.Setenv("OTHER", "kept")
	env := strings.Join(WorkerEnv(), "\n")
	if strings.Contains(env, "ATHANOR_") || !strings.Contains(env, "OTHER=kept") {
		t.Errorf("got %s", env)
	}
}

func TestBadSettings(t *testing.T) {
	tests := []struct{ name, toml, want string }{
		{"unknown key", "lisen = \"x\"\n", "lisen"},
		{"not toml", "listen = \n", "listen"},
		{"wrong type", "threads = \"two\"\n", "threads"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "athanor.toml")
			write(t, file, tt.toml)
			if _, err := Load(file); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error that names %q", err, tt.want)
			}
		})
	}
	t.Setenv("ATHANOR_THREADS", "many")
	if _, err := Load(""); err == nil || !strings.Contains(err.Error(), "ATHANOR_THREADS") {
		t.Errorf("got %v, want an error that names the variable", err)
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"default", func(*Config) {}, ""},
		{"listen", func(c *Config) { c.Listen = "8080" }, "listen"},
		{"no training job at all", func(c *Config) { c.TrainingJobs = 0 }, "training-jobs"},
		{"half of TLS", func(c *Config) { c.TLSCert = "x" }, "tls-key"},
		{"level", func(c *Config) { c.LogLevel = "loud" }, "log-level"},
		{"port", func(c *Config) { c.Listen = "127.0.0.1:99999" }, "99999"},
		{"any free port", func(c *Config) { c.Listen = "127.0.0.1:0" }, ""},
		{"hub", func(c *Config) { c.Hub = "https://mirror.lab/hub/" }, ""},
		{"hub without a scheme", func(c *Config) { c.Hub = "mirror.lab" }, "hub"},
		{"hub with a secret", func(c *Config) { c.Hub = "https://a:b@mirror.lab" }, "hub"},
		{"half of s3", func(c *Config) { c.S3.Endpoint = "h:1" }, "s3"},
		{"s3 without its endpoint", func(c *Config) { c.S3 = S3{Bucket: "b", AccessKey: "a", SecretKey: "s"} }, "s3"},
		{"s3", func(c *Config) { c.S3 = S3{Endpoint: "h:1", Bucket: "b", AccessKey: "a", SecretKey: "s"} }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Default()
			tt.change(&c)
			err := c.Validate()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
