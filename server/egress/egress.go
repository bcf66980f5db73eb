package egress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

const (
	dialTime     = 10 * time.Second // of one address
	maxAddresses = 16               // of one name that are tried
)

// Denied is the error of a connection that the list does not allow. Its text is
// for the user and names the setting.
type Denied struct {
	Host   string // host:port that was asked for
	Reason string
}

func (e *Denied) Error() string { return e.Reason }

// Gate decides what may leave the machine. Its methods may be called by any
// goroutine.
type Gate struct {
	entries []entry
	log     *slog.Logger
	lookup  func(ctx context.Context, host string) ([]netip.Addr, error)
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
}

// New makes a Gate of the owner's list; see the package about its entries. The
// error names the entry that cannot be read.
func New(list []string, log *slog.Logger) (*Gate, error) {
	g := &Gate{log: log, dial: (&net.Dialer{Timeout: dialTime}).DialContext}
	g.lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}
	for _, text := range list {
		e, err := parseEntry(text)
		if err != nil {
			return nil, fmt.Errorf("allow-egress: %w", err)
		}
		g.entries = append(g.entries, e)
	}
	return g, nil
}

// Check says whether the list has the host of an http or https URL, without
// looking it up. It is for refusing a request early; the connection is checked
// again. The error is a *Denied or says what is wrong with the URL.
func (g *Gate) Check(rawURL string) error {
	u, err := url.Parse(rawURL)
	if err != nil {
		return errors.New("it is not a URL")
	}
	address, err := addressOf(u)
	if err != nil {
		return err
	}
	_, err = g.match(address)
	return err
}

// addressOf is the host:port that a URL leads to.
func addressOf(u *url.URL) (string, error) {
	port := u.Port()
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("the URL must begin with http:// or https://, not %.20q", u.Scheme)
	case u.Hostname() == "":
		return "", errors.New("the URL has no host")
	case port == "" && u.Scheme == "http":
		port = "80"
	case port == "":
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// target is a host that the list has.
type target struct {
	name    string
	addr    netip.Addr // valid when the host is an address itself
	port    string
	private bool // addresses that are not public are allowed too
}

// match finds the entries for host:port.
func (g *Gate) match(address string) (target, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return target{}, &Denied{address, fmt.Sprintf("%.100q is not host:port", address)}
	}
	t := target{port: port}
	if t.name, t.addr, err = parseHost(host); err != nil {
		return t, &Denied{address, err.Error()}
	}
	found := false
	for _, e := range g.entries {
		if e.matches(t.name, t.addr, port) {
			found = true
			t.private = t.private || e.private || e.addr.IsValid()
		}
	}
	if !found {
		return t, &Denied{address, fmt.Sprintf("connections to %s are not allowed: nothing leaves this machine "+
			"unless its owner lists the host, as in --allow-egress %s", address, host)}
	}
	return t, nil
}

// Dial connects to host:port over TCP, if the list allows it and every rule about
// its address does. purpose says for the log what the connection is for. The error
// of a refusal is a *Denied.
func (g *Gate) Dial(ctx context.Context, purpose, address string) (net.Conn, error) {
	t, err := g.match(address)
	if err == nil {
		var conn net.Conn
		if conn, err = g.connect(ctx, purpose, address, t); err == nil {
			return conn, nil
		}
	}
	if _, denied := errors.AsType[*Denied](err); denied {
		g.log.Warn("connection out refused", "host", address, "for", purpose, "allowed", false, "reason", err)
	} else {
		g.log.Info("connection out failed", "host", address, "for", purpose, "allowed", true, "error", err)
	}
	return nil, err
}

// connect dials the addresses of t in their order until one answers.
func (g *Gate) connect(ctx context.Context, purpose, address string, t target) (net.Conn, error) {
	addrs, err := g.resolve(ctx, address, t)
	if err != nil {
		return nil, err
	}
	for _, a := range addrs[:min(len(addrs), maxAddresses)] {
		var conn net.Conn
		if conn, err = g.dial(ctx, "tcp", net.JoinHostPort(a.String(), t.port)); err == nil {
			g.log.Info("connection out", "host", address, "address", a.String(), "for", purpose, "allowed", true)
			return conn, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("connect to %s: %w", address, err)
}

// resolve gives the addresses of t that may be dialled, at least one. A name with
// one address that is not allowed is refused as a whole.
func (g *Gate) resolve(ctx context.Context, address string, t target) ([]netip.Addr, error) {
	if t.addr.IsValid() {
		return []netip.Addr{t.addr}, nil
	}
	found, err := g.lookup(ctx, t.name)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", t.name, err)
	}
	var addrs []netip.Addr
	for _, a := range found {
		a = a.Unmap()
		if !t.private && !public(a) {
			return nil, &Denied{address, fmt.Sprintf("%s leads to %s, which is not a public address: "+
				"if that is meant, list it as %s+private in --allow-egress", t.name, a, strings.TrimSuffix(t.name, "."))}
		}
		addrs = append(addrs, a)
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("look up %s: it has no address", t.name)
	}
	return addrs, nil
}
