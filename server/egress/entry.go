package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// maxName is the longest host name, in bytes. (RFC 1035, section 2.3.4.)
const maxName = 253

// entry is one line of the list.
type entry struct {
	name    string     // in small letters; "" for an address
	below   bool       // the names below name, not name itself
	addr    netip.Addr // valid for an address
	port    string     // "" for every port
	private bool       // the name may lead to an address that is not public
}

// parseEntry reads host[:port], *.suffix[:port] or an address, with or without
// "+private".
func parseEntry(text string) (e entry, err error) {
	rest, marked := strings.CutSuffix(strings.TrimSpace(text), "+private")
	e.private = marked
	host, port, err := splitPort(rest)
	if err != nil {
		return e, fmt.Errorf("%q: %w", text, err)
	}
	e.port = port
	host, e.below = strings.CutPrefix(host, "*.")
	e.name, e.addr, err = parseHost(host)
	switch {
	case err != nil:
		return e, fmt.Errorf("%q: %w", text, err)
	case e.addr.IsValid() && (e.below || e.private):
		return e, fmt.Errorf("%q: an address stands for itself alone, without *. and +private", text)
	}
	if e.name == "localhost" || strings.HasSuffix(e.name, ".localhost") {
		e.private = true // the name means this machine (RFC 6761, section 6.3)
	}
	return e, nil
}

// splitPort splits host[:port]; an IPv6 address with a port stands in brackets.
func splitPort(s string) (host, port string, err error) {
	if inner, found := strings.CutPrefix(s, "["); found {
		var after string
		if host, after, found = strings.Cut(inner, "]"); !found {
			return "", "", errors.New("a bracket is not closed")
		}
		if after == "" {
			return host, "", nil
		}
		if port, found = strings.CutPrefix(after, ":"); !found {
			return "", "", errors.New("only :port may follow the brackets")
		}
	} else if strings.Count(s, ":") != 1 {
		return s, "", nil // no port, or an IPv6 address
	} else {
		host, port, _ = strings.Cut(s, ":")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return "", "", fmt.Errorf("%q is not a port", port)
	}
	return host, port, nil
}

// parseHost reads a host as an address or as a name. Other spellings of addresses
// (decimal, octal, hexadecimal, with parts left out) are refused: resolvers differ
// about them.
func parseHost(host string) (name string, addr netip.Addr, err error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return "", netip.Addr{}, errors.New("an address with a zone is not supported")
		}
		return "", addr.Unmap(), nil
	}
	name = strings.ToLower(strings.TrimSuffix(host, "."))
	if name == "" || len(name) > maxName {
		return "", netip.Addr{}, errors.New("the host is empty or too long")
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "", netip.Addr{}, fmt.Errorf("%.80q is not a host name", host)
		}
	}
	if last := labels[len(labels)-1]; numeric(last) {
		return "", netip.Addr{}, fmt.Errorf("%.80q is neither a host name nor an address in its usual form", host)
	}
	return name, netip.Addr{}, nil
}

// numeric reports whether a last label makes a resolver take a name for an IPv4
// address. (WHATWG URL, "ends in a number".)
func numeric(label string) bool {
	if strings.Trim(label, "0123456789") == "" {
		return true
	}
	_, err := strconv.ParseUint(label, 0, 64)
	return err == nil || label == "0x"
}

// matches reports whether the entry is about a host, as parseHost gives it.
func (e entry) matches(name string, addr netip.Addr, port string) bool {
	switch {
	case e.port != "" && e.port != port:
		return false
	case e.addr.IsValid():
		return e.addr == addr
	case e.below:
		return strings.HasSuffix(name, "."+e.name)
	}
	return name != "" && name == e.name
}

// special are the blocks beyond those netip knows that the internet does not route
// to one host, or that carry an IPv4 address inside. (IANA special-purpose address
// registries.)
var special = prefixes("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	"5f00::/16", "fec0::/10")

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, t := range texts {
		list = append(list, netip.MustParsePrefix(t))
	}
	return list
}

// public reports whether an address is one of the internet at large.
func public(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}
	for _, p := range special {
		if p.Contains(a) {
			return false
		}
	}
	return true
}
