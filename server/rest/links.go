package rest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strconv"
	"time"

	"athanor/server/api"
)

// Links signs paths, so that whoever has the link may do this one thing until it
// expires, without a key. Operations with the access Signed ask for it.
type Links struct {
	secret []byte
	now    func() time.Time
}

// NewLinks makes Links of a secret of at least 32 random bytes, which has to stay
// the same as long as links shall be good.
func NewLinks(secret []byte, now func() time.Time) *Links { return &Links{secret, now} }

// Sign gives the path with the query that makes it a link: method may be done on
// it, under every prefix, until expires.
func (l *Links) Sign(method, path string, expires time.Time) string {
	at := strconv.FormatInt(expires.Unix(), 10)
	return path + "?expires=" + at + "&signature=" + l.signature(method, path, at)
}

func (l *Links) signature(method, path, expires string) string {
	h := hmac.New(sha256.New, l.secret)
	h.Write([]byte(method + "\n" + path + "\n" + expires))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// check returns nil for a link that Sign made and that has not expired.
func (l *Links) check(method, path string, query url.Values) error {
	at, given := query.Get("expires"), query.Get("signature")
	if given == "" || at == "" {
		return api.Unauthorized("invalid_signature", "this URL works only as a link that the server has signed")
	}
	if !hmac.Equal([]byte(given), []byte(l.signature(method, path, at))) {
		return api.Unauthorized("invalid_signature", "the signature of the link is wrong")
	}
	if n, err := strconv.ParseInt(at, 10, 64); err != nil || l.now().Unix() >= n {
		return api.Unauthorized("link_expired", "the link has expired")
	}
	return nil
}

// verify checks the link by which the request came.
func (x *exchange) verify() error {
	if x.s.links == nil {
		return api.Unauthorized("invalid_signature", "this server signs no links")
	}
	query := url.Values{}
	for k, v := range x.rc.QueryArgs().All() {
		query.Add(string(k), string(v))
	}
	path := x.path
	return x.s.links.check(x.op.Method, path, query)
}
