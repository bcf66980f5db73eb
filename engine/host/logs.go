package host

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

const (
	maxLine  = 4 << 10 // bytes of a log line that are kept
	maxTail  = 50      // last lines that are kept
	cutMark  = " [cut]"
	maxTrace = 20 // lines of a crash that go to the log; the rest only to the tail
)

// logTail passes the log of a worker on, line by line, and keeps its end.
type logTail struct {
	log *slog.Logger

	mu       sync.Mutex // guards the fields below
	lines    []string
	headline string // first line of a crash report
	traced   int    // lines since then
}

// read takes lines from r until it ends. It never holds more than one line.
func (l *logTail) read(r io.Reader) {
	in := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		text := strings.ToValidUTF8(strings.TrimRight(string(line), "\r\n"), "\uFFFD")
		if errors.Is(err, bufio.ErrBufferFull) {
			text += cutMark
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = in.ReadSlice('\n')
			}
		}
		if text != "" {
			l.add(text)
		}
		if err != nil {
			return
		}
	}
}

func (l *logTail) add(text string) {
	l.mu.Lock()
	if len(l.lines) == maxTail {
		l.lines = append(l.lines[:0], l.lines[1:]...)
	}
	l.lines = append(l.lines, text)
	if l.headline == "" && isHeadline(text) {
		l.headline = text
	} else if l.headline != "" {
		l.traced++
	}
	level, silent := lineLevel(text), l.traced > maxTrace
	if l.headline != "" {
		level = slog.LevelError
	}
	l.mu.Unlock()
	if !silent {
		l.log.Log(context.Background(), level, "worker log", "line", text)
	}
}

// isHeadline recognises the first line of what the Go runtime and the C library
// write when a process dies. What follows can be thousands of lines and would
// push it out of the tail.
func isHeadline(text string) bool {
	return slices.ContainsFunc([]string{"panic: ", "fatal error: ", "runtime: ", "SIG", "terminate called", "free(): ", "malloc"},
		func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}

// lineLevel is the level that a slog text handler wrote into the line.
func lineLevel(text string) slog.Level {
	switch {
	case strings.Contains(text, "level=ERROR"):
		return slog.LevelError
	case strings.Contains(text, "level=WARN"):
		return slog.LevelWarn
	case strings.Contains(text, "level=DEBUG"):
		return slog.LevelDebug
	default:
		return slog.LevelInfo
	}
}

// tail returns the crash headline, or "", and a copy of the last lines.
func (l *logTail) tail() (headline string, lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.headline, slices.Clone(l.lines)
}
