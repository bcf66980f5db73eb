package egress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// newGate makes a gate whose names are looked up in hosts and whose connections
// all end at the server to, whatever their address; dialled collects the addresses.
func newGate(t *testing.T, list []string, hosts map[string]string, to string) (*Gate, *[]string, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	g, err := New(list, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	g.lookup = func(_ context.Context, host string) (addrs []netip.Addr, _ error) {
		for a := range strings.FieldsSeq(hosts[host]) {
			addrs = append(addrs, netip.MustParseAddr(a))
		}
		return addrs, nil
	}
	var dialled []string
	g.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled = append(dialled, address)
		return (&net.Dialer{}).DialContext(ctx, network, to)
	}
	return g, &dialled, &log
}

// hold accepts connections and keeps them until the test ends.
func hold(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

func TestDial(t *testing.T) {
	hosts := map[string]string{
		"hub.example": "93.184.216.34", "cdn.hub.example": "2606:4700::1", "both.example": "93.184.216.34 10.0.0.1",
		"loop.example": "127.0.0.1", "private.example": "192.168.1.5", "link.example": "169.254.169.254", "mapped.example": "::ffff:10.0.0.1",
		"six.example": "::1", "linksix.example": "fe80::1", "unique.example": "fd00::1", "shared.example": "100.64.0.1",
		"nat.example": "64:ff9b::a00:1", "sixtofour.example": "2002:a00:1::", "zero.example": "0.0.0.0", "multi.example": "224.0.0.1",
		"compat.example": "::10.0.0.1", "localhost": "127.0.0.1", "tracker.lab": "10.1.2.3", "none.example": "",
	}
	everyone := []string{"*.example"}
	tests := []struct {
		name, address string
		list          []string
		dialled       string // the address, "" for a refusal
		reason        string
	}{
		{"nothing is listed", "hub.example:443", nil, "", "--allow-egress hub.example"},
		{"listed", "hub.example:443", []string{"hub.example"}, "93.184.216.34:443", ""},
		{"capitals and a dot at the end", "HUB.Example.:443", []string{"hub.EXAMPLE"}, "93.184.216.34:443", ""},
		{"listed with its port", "hub.example:443", []string{"hub.example:443"}, "93.184.216.34:443", ""},
		{"another port", "hub.example:80", []string{"hub.example:443"}, "", "not allowed"},
		{"below a suffix", "cdn.hub.example:443", []string{"*.hub.example"}, "[2606:4700::1]:443", ""},
		{"the suffix itself is not below it", "hub.example:443", []string{"*.hub.example"}, "", "not allowed"},
		{"another name with the same end", "evilhub.example:443", []string{"*.hub.example", "hub.example"}, "", "not allowed"},
		{"loopback behind a name", "loop.example:80", everyone, "", "127.0.0.1, which is not a public address"},
		{"private", "private.example:80", everyone, "", "private.example+private"},
		{"link-local, as cloud metadata", "link.example:80", everyone, "", "169.254.169.254"},
		{"mapped into IPv6", "mapped.example:80", everyone, "", "10.0.0.1"},
		{"IPv6 loopback", "six.example:80", everyone, "", "::1"},
		{"IPv6 link-local", "linksix.example:80", everyone, "", "fe80::1"},
		{"IPv6 private", "unique.example:80", everyone, "", "fd00::1"},
		{"shared", "shared.example:80", everyone, "", "100.64.0.1"},
		{"translated", "nat.example:80", everyone, "", "64:ff9b"},
		{"6to4", "sixtofour.example:80", everyone, "", "2002:"},
		{"IPv4-compatible", "compat.example:80", everyone, "", "::"},
		{"this network", "zero.example:80", everyone, "", "0.0.0.0"},
		{"multicast", "multi.example:80", everyone, "", "224.0.0.1"},
		{"one of two addresses is private", "both.example:80", everyone, "", "10.0.0.1"},
		{"no address", "none.example:80", everyone, "", "no address"},
		{"marked", "tracker.lab:8080", []string{"tracker.lab:8080+private"}, "10.1.2.3:8080", ""},
		{"marked for another port", "tracker.lab:80", []string{"tracker.lab", "tracker.lab:8080+private"}, "", "10.1.2.3"},
		{"localhost", "localhost:8080", []string{"localhost"}, "127.0.0.1:8080", ""},
		{"a listed address", "10.0.0.7:80", []string{"10.0.0.7"}, "10.0.0.7:80", ""},
		{"another address", "10.0.0.8:80", []string{"10.0.0.7"}, "", "not allowed"},
		{"the same address, mapped", "[::ffff:10.0.0.7]:80", []string{"10.0.0.7"}, "10.0.0.7:80", ""},
		{"a listed IPv6 address", "[fd00::7]:80", []string{"[fd00::7]:80"}, "[fd00::7]:80", ""},
		{"an address is not below a suffix", "10.0.0.1:80", []string{"*.example", "*.lab"}, "", "not allowed"},
		{"decimal", "2130706433:80", []string{"127.0.0.1", "*.example"}, "", "neither a host name nor an address"},
		{"octal", "0177.0.0.1:80", []string{"127.0.0.1"}, "", "neither"},
		{"hexadecimal", "0x7f.1:80", []string{"127.0.0.1"}, "", "neither"},
		{"hexadecimal, one number", "0x7f000001:80", []string{"127.0.0.1"}, "", "neither"},
		{"short", "127.1:80", []string{"127.0.0.1"}, "", "neither"},
		{"a zone", "[fe80::1%25eth0]:80", []string{"fe80::1"}, "", "zone"},
		{"a zone that parses", "[fe80::1%eth0]:80", []string{"fe80::1"}, "", "zone"},
		{"not a host", "a b:80", everyone, "", "not a host name"},
		{"another script", "hub.exаmple:80", []string{"hub.example"}, "", "not a host name"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, dialled, log := newGate(t, tt.list, hosts, hold(t))
			conn, err := g.Dial(t.Context(), "job ft-1", tt.address)
			if tt.dialled != "" {
				if err != nil || len(*dialled) != 1 || (*dialled)[0] != tt.dialled {
					t.Fatalf("dialled %v, error %v, want %s", *dialled, err, tt.dialled)
				}
				conn.Close()
			} else if err == nil || !strings.Contains(err.Error(), tt.reason) || len(*dialled) != 0 {
				t.Fatalf("dialled %v, error %v, want one with %q", *dialled, err, tt.reason)
			}
			if line := log.String(); strings.Count(line, "\n") != 1 || !strings.Contains(line, `for="job ft-1"`) {
				t.Errorf("logged %q", line)
			}
		})
	}
}

// TestRebinding checks that a name whose address changes after the check is
// dialled at the address that was checked.
func TestRebinding(t *testing.T) {
	g, dialled, _ := newGate(t, []string{"hub.example"}, nil, hold(t))
	lookups := 0
	g.lookup = func(context.Context, string) ([]netip.Addr, error) {
		if lookups++; lookups == 1 {
			return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	conn, err := g.Dial(t.Context(), "test", "hub.example:80")
	if err != nil || (*dialled)[0] != "93.184.216.34:80" || lookups != 1 {
		t.Fatalf("dialled %v after %d lookups, error %v", *dialled, lookups, err)
	}
	conn.Close()
	if _, err := g.Dial(t.Context(), "test", "hub.example:80"); err == nil || len(*dialled) != 1 {
		t.Errorf("the next connection trusted the first check: dialled %v", *dialled)
	}
}

func TestEntries(t *testing.T) {
	tests := []struct{ entry, want string }{
		{"hub.example", ""}, {"*.hub.example:443", ""}, {"10.0.0.7:80", ""}, {"::1", ""}, {"[::1]:80", ""}, {"[::1]", ""},
		{" tracker.lab+private ", ""},
		{"", "empty"}, {"*", "not a host name"}, {"*.*", "not a host name"}, {"a.*.b", "not a host name"}, {"https://hub.example", "port"},
		{"hub.example/path", "not a host name"}, {"hub.example:0", "port"}, {"hub.example:http", "port"}, {"hub.example:", "port"}, {"hub.example:070", "port"},
		{"[::1", "bracket"}, {"[::1]80", "brackets"}, {"10.0.0.7+private", "itself"}, {"*.10.0.0.7", "itself"},
		{"0x7f.1", "usual form"}, {"1", "usual form"}, {"*.1", "usual form"}, {"fe80::1%eth0", "zone"}, {"hub..example", "not a host name"},
		{strings.Repeat("a.", 200) + "b", "too long"},
	}
	for _, tt := range tests {
		_, err := New([]string{tt.entry}, slog.New(slog.DiscardHandler))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "allow-egress: ")) {
			t.Errorf("%q: got %v, want %q", tt.entry, err, tt.want)
		}
	}
}

func TestCheck(t *testing.T) {
	g, _, _ := newGate(t, []string{"hub.example:443"}, nil, "")
	tests := []struct{ url, want string }{
		{"https://hub.example/a", ""}, {"http://hub.example/a", "hub.example:80"}, {"ftp://hub.example", "must begin with"},
		{"hub.example", "must begin with"}, {"https://", "no host"}, {"https://user@other.example/", "other.example:443"}, {"%", "not a URL"},
	}
	for _, tt := range tests {
		err := g.Check(tt.url)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%q: got %v, want %q", tt.url, err, tt.want)
		}
	}
}

// TestClient checks redirects, sizes and times against a real server, to which
// every name leads.
func TestClient(t *testing.T) {
	stop := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "fine") })
	mux.HandleFunc("/to", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.FormValue("url"), http.StatusFound)
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("a", 11)) })
	mux.HandleFunc("/exact", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("a", 10)) })
	mux.HandleFunc("/stall", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "begin")
		w.(http.Flusher).Flush()
		<-stop
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(stop) })
	g, _, log := newGate(t, []string{"a.example", "b.example"},
		map[string]string{"a.example": "93.184.216.34", "b.example": "127.0.0.1"}, server.Listener.Addr().String())
	client := g.Client(Options{Purpose: "test", MaxBody: 10, Idle: 50 * time.Millisecond})
	t.Cleanup(client.CloseIdleConnections)
	tests := []struct {
		name, url, want string
		denied          bool
	}{
		{"good", "http://a.example/ok", "", false},
		{"as long as allowed", "http://a.example/exact", "", false},
		{"redirect to a listed host", "http://a.example/to?url=http://a.example/ok", "", false},
		{"redirect to another host", "http://a.example/to?url=http://c.example/ok", "c.example:80", true},
		{"redirect to an address", "http://a.example/to?url=http://127.0.0.1/ok", "127.0.0.1:80", true},
		{"redirect to a listed name inside", "http://a.example/to?url=http://b.example/ok", "not a public address", true},
		{"redirect to a file", "http://a.example/to?url=file:///etc/passwd", "must begin with", false},
		{"endless redirects", "http://a.example/loop", "redirects", false},
		{"too long", "http://a.example/long", ErrTooLarge.Error(), false},
		{"stalls", "http://a.example/stall", "timeout", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := get(t, client, tt.url)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
			if _, denied := errors.AsType[*Denied](err); denied != tt.denied {
				t.Errorf("the error %v is a refusal: %t", err, denied)
			}
		})
	}
	if strings.Contains(log.String(), "/ok") {
		t.Errorf("the log has paths: %s", log)
	}
}

func get(t *testing.T, client *http.Client, url string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	return err
}

// TestNoProxy has proxies in the environment, which would dial for us.
func TestNoProxy(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the proxy was asked for %s", r.URL) }))
	t.Cleanup(proxy.Close)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "fine") }))
	t.Cleanup(server.Close)
	g, dialled, _ := newGate(t, []string{"a.example"}, map[string]string{"a.example": "93.184.216.34"}, server.Listener.Addr().String())
	client := g.Client(Options{Purpose: "test"})
	t.Cleanup(client.CloseIdleConnections)
	if err := get(t, client, "http://a.example/ok"); err != nil || len(*dialled) != 1 || (*dialled)[0] != "93.184.216.34:80" {
		t.Errorf("dialled %v, %v", *dialled, err)
	}
}

func TestNoWayDown(t *testing.T) {
	from, _ := http.NewRequest(http.MethodGet, "https://a.example/", nil)
	to, _ := http.NewRequest(http.MethodGet, "http://a.example/", nil)
	if err := checkRedirect(to, []*http.Request{from}); err == nil {
		t.Error("a redirect from https to http was followed")
	}
}

func FuzzEntry(f *testing.F) {
	for _, s := range []string{"hub.example:443", "*.a+private", "[::1]:80", "0x7f.1", "10.0.0.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := parseEntry(s)
		if err == nil && (e.name == "") == !e.addr.IsValid() {
			t.Errorf("%q became %+v", s, e)
		}
	})
}
