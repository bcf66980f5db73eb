package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// flags of the command line.
type flags struct {
	streams, rounds, tokens int
	delay                   time.Duration
	procs, repeat           int
	profile                 string
	role                    string // internal: which child this is
	addr, key               string // internal: of the server, for the clients
}

func main() {
	var f flags
	flag.IntVar(&f.streams, "streams", 200, "streams at the same time")
	flag.IntVar(&f.rounds, "rounds", 20, "streams one after another on each connection, the first of which is not counted")
	flag.IntVar(&f.tokens, "tokens", 20, "tokens of each stream")
	flag.DurationVar(&f.delay, "delay", 20*time.Millisecond, "time of the mock for a token")
	flag.IntVar(&f.procs, "procs", 2, "GOMAXPROCS of each of the two processes")
	flag.IntVar(&f.repeat, "repeat", 3, "measurements")
	flag.StringVar(&f.profile, "profile", "", "file for a CPU profile of the server")
	flag.StringVar(&f.role, "role", "", "internal")
	flag.StringVar(&f.addr, "addr", "", "internal")
	flag.StringVar(&f.key, "key", "", "internal")
	flag.Parse()
	var err error
	switch f.role {
	case "":
		err = measure(f)
	case "bare":
		err = bare(f)
	case "server":
		err = serve(f)
	case "clients":
		err = load(f)
	default:
		err = fmt.Errorf("no role %q", f.role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "overhead:", err)
		os.Exit(1)
	}
}

// timing is one stream as one end saw it, in nanoseconds.
type timing struct {
	ID    string        `json:"id"`
	First time.Duration `json:"first"` // to the first token
	Total time.Duration `json:"total"`
}

// measure runs the streams against a bare server and against the control plane,
// in turns, and reports.
func measure(f flags) error {
	fmt.Printf("%d streams at a time, %d tokens each, %v per token; %d cores, GOMAXPROCS %d\n",
		f.streams, f.tokens, f.delay, runtime.NumCPU(), f.procs)
	fmt.Printf("%-18s %8s %8s %8s %8s %10s\n", "overhead in ms", "p50", "p90", "p99", "max", "streams/s")
	for range f.repeat {
		for _, role := range []string{"bare", "server"} {
			r, err := run(f, role)
			if err != nil {
				return fmt.Errorf("%s: %w", role, err)
			}
			r.print(role)
		}
	}
	return nil
}

// run has a server of a role and its clients.
func run(f flags, role string) (*result, error) {
	server, err := start(f, role)
	if err != nil {
		return nil, err
	}
	defer server.kill()
	line, err := server.out.ReadString('\n')
	if err != nil {
		return nil, errors.Join(err, server.cmd.Wait())
	}
	addr, key, _ := strings.Cut(strings.TrimSpace(line), " ")
	began := time.Now()
	clients, err := start(f, "clients", "-addr", addr, "-key", key)
	if err != nil {
		return nil, err
	}
	defer clients.kill()
	seen, err := clients.timings()
	if err != nil {
		return nil, fmt.Errorf("clients: %w", err)
	}
	wall := time.Since(began)
	own, err := server.timings()
	if err != nil {
		return nil, err
	}
	r := &result{rate: float64(f.streams*f.rounds) / wall.Seconds()}
	return r, r.join(seen, own)
}

// child is one of the two processes. Its standard input says when to end.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Reader
}

func start(f flags, role string, more ...string) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{
		"-role", role, "-streams", strconv.Itoa(f.streams), "-rounds", strconv.Itoa(f.rounds),
		"-tokens", strconv.Itoa(f.tokens), "-delay", f.delay.String(), "-profile", f.profile,
	}
	c := &child{cmd: exec.Command(exe, append(args, more...)...)}
	c.cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(f.procs))
	c.cmd.Stderr = os.Stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	return c, c.cmd.Start()
}

// timings ends the child, unless it ends by itself, and reads what it measured.
func (c *child) timings() (map[string]timing, error) {
	if err := c.stdin.Close(); err != nil {
		return nil, err
	}
	list := map[string]timing{}
	for dec := json.NewDecoder(c.out); ; {
		var t timing
		if err := dec.Decode(&t); errors.Is(err, io.EOF) {
			return list, c.cmd.Wait()
		} else if err != nil {
			return nil, errors.Join(err, c.cmd.Wait())
		}
		list[t.ID] = t
	}
}

// kill does nothing to a child that has ended.
func (c *child) kill() { _ = c.cmd.Process.Kill() }

// result is the overhead of each stream and how many there were in a second.
type result struct {
	first, total []time.Duration
	rate         float64
}

// join takes what the server did by itself from what the clients saw.
func (r *result) join(seen, own map[string]timing) error {
	for id, s := range seen {
		o, ok := own[id]
		if !ok {
			return fmt.Errorf("the server did not see stream %s", id)
		}
		r.first = append(r.first, s.First-o.First)
		r.total = append(r.total, s.Total-o.Total)
	}
	if len(seen) == 0 {
		return errors.New("nothing was measured")
	}
	slices.Sort(r.first)
	slices.Sort(r.total)
	return nil
}

func (r *result) print(role string) {
	for _, row := range []struct {
		name string
		list []time.Duration
	}{{role + ", first", r.first}, {role + ", stream", r.total}} {
		at := func(q float64) float64 { return row.list[int(q*float64(len(row.list)-1))].Seconds() * 1e3 }
		fmt.Printf("%-18s %8.3f %8.3f %8.3f %8.3f %10.0f\n", row.name, at(0.5), at(0.9), at(0.99), at(1), r.rate)
	}
}
