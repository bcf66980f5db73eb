package api_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"athanor/server/api"
)

func TestKeyExpiry(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tests := []struct {
		body  string
		want  string // RFC 3339, "" for never
		param string // of the error
		given bool
	}{
		{`{"name":"x"}`, "", "", false},
		{`{"name":"x","expires_at":null}`, "", "", true},
		{`{"name":"x","expires_in":"1h"}`, "2026-01-02T04:04:05Z", "", true},
		{`{"name":"x","expires_in":"1d"}`, "2026-01-03T03:04:05Z", "", true},
		{`{"name":"x","expires_in":"7d"}`, "2026-01-09T03:04:05Z", "", true},
		{`{"name":"x","expires_in":"30d"}`, "2026-02-01T03:04:05Z", "", true},
		{`{"name":"x","expires_at":"2026-01-02T04:04:06+01:00"}`, "2026-01-02T03:04:06Z", "", true},
		{`{"name":"x","expires_at":"2026-01-02T04:04:05+01:00"}`, "", "expires_at", true},
		{`{"name":"x","expires_at":"2126-02-01T00:00:00Z"}`, "", "expires_at", true},
		{`{"name":"x","expires_in":"-1h"}`, "", "expires_in", true},
		{`{"name":"x","expires_in":"1h","expires_at":"2027-01-01T00:00:00Z"}`, "", "expires_in", true},
		{`{"expires_in":"1h"}`, "", "name", true},
	}
	for _, tt := range tests {
		var r api.CreateKeyRequest
		if err := json.Unmarshal([]byte(tt.body), &r); err != nil {
			t.Fatal(err)
		}
		err := r.Validate()
		got := ""
		if err == nil {
			var at *time.Time
			if at, err = r.Time(now); at != nil {
				got = at.Format(time.RFC3339)
			}
		}
		var e *api.Error
		param := ""
		if errors.As(err, &e) && e.Param != nil {
			param = *e.Param
		}
		if got != tt.want || param != tt.param || (err != nil) != (tt.param != "") || r.Given() != tt.given {
			t.Errorf("%s: got %q, %v, given %v", tt.body, got, err, r.Given())
		}
	}
}

func TestNullableTime(t *testing.T) {
	t.Parallel()
	var v struct{ At api.NullableTime }
	if err := json.Unmarshal([]byte(`{"At":"yesterday"}`), &v); err == nil {
		t.Error("accepted a word for a time")
	}
	if err := json.Unmarshal([]byte(`{"At":12}`), &v); err == nil {
		t.Error("accepted a number for a time")
	}
}

func TestPaging(t *testing.T) {
	t.Parallel()
	for limit, ok := range map[int]bool{-1: false, 0: false, 1: true, api.MaxPage: true, api.MaxPage + 1: false} {
		p := api.Paging{Limit: &limit}
		if err := p.Validate(); (err == nil) != ok || p.Size() != limit {
			t.Errorf("limit %d: got %v", limit, err)
		}
	}
	if p := (api.Paging{}); p.Validate() != nil || p.Size() != 100 {
		t.Errorf("no limit: got %d", p.Size())
	}
}
