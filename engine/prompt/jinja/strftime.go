package jinja

import (
	"fmt"
	"strings"
	"time"
)

// strftime formats t as C's strftime does in the C locale, with the glibc flags
// "-" (no padding), "_" (blanks), "0" and "^" (upper case). Unknown directives
// stay as they are.
func strftime(format string, t time.Time) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		start, flag := i, byte(0)
		i++
		if strings.IndexByte("-_0^", format[i]) >= 0 && i+1 < len(format) {
			flag = format[i]
			i++
		}
		if s, ok := directive(format[i], flag, t); ok {
			b.WriteString(s)
		} else {
			b.WriteString(format[start : i+1])
		}
	}
	return b.String()
}

// layouts are the directives that Go's time package can write.
var layouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'c': "Mon Jan _2 15:04:05 2006",
	'D': "01/02/06", 'F': "2006-01-02", 'p': "PM", 'r': "03:04:05 PM", 'R': "15:04", 'T': "15:04:05",
	'x': "01/02/06", 'X': "15:04:05", 'z': "-0700", 'Z': "MST",
}

func directive(c, flag byte, t time.Time) (string, bool) {
	if layout, ok := layouts[c]; ok {
		s := t.Format(layout)
		if flag == '^' {
			s = strings.ToUpper(s)
		}
		return s, true
	}
	switch c {
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case '%':
		return "%", true
	case 'P':
		return strings.ToLower(t.Format("PM")), true
	}
	n, width, pad, ok := number(c, t)
	if !ok {
		return "", false
	}
	switch flag {
	case '-':
		width = 0
	case '_':
		pad = ' '
	case '0':
		pad = '0'
	}
	if pad == ' ' {
		return fmt.Sprintf("%*d", width, n), true
	}
	return fmt.Sprintf("%0*d", width, n), true
}

// number is the value of a numeric directive, with its usual width and padding.
func number(c byte, t time.Time) (n, width int, pad byte, ok bool) {
	isoYear, isoWeek := t.ISOWeek()
	hour12 := (t.Hour()+11)%12 + 1
	weekday := int(t.Weekday()) // Sunday is 0
	monday := (weekday + 6) % 7
	switch c {
	case 'Y':
		return t.Year(), 0, '0', true
	case 'C':
		return t.Year() / 100, 2, '0', true
	case 'y':
		return t.Year() % 100, 2, '0', true
	case 'm':
		return int(t.Month()), 2, '0', true
	case 'd':
		return t.Day(), 2, '0', true
	case 'e':
		return t.Day(), 2, ' ', true
	case 'H':
		return t.Hour(), 2, '0', true
	case 'k':
		return t.Hour(), 2, ' ', true
	case 'I':
		return hour12, 2, '0', true
	case 'l':
		return hour12, 2, ' ', true
	case 'M':
		return t.Minute(), 2, '0', true
	case 'S':
		return t.Second(), 2, '0', true
	case 'f':
		return t.Nanosecond() / 1000, 6, '0', true
	case 'j':
		return t.YearDay(), 3, '0', true
	case 'w':
		return weekday, 1, '0', true
	case 'u':
		return monday + 1, 1, '0', true
	case 'U':
		return (t.YearDay() - 1 + 7 - weekday) / 7, 2, '0', true
	case 'W':
		return (t.YearDay() - 1 + 7 - monday) / 7, 2, '0', true
	case 'G':
		return isoYear, 0, '0', true
	case 'g':
		return isoYear % 100, 2, '0', true
	case 'V':
		return isoWeek, 2, '0', true
	case 's':
		return int(t.Unix()), 0, '0', true
	}
	return 0, 0, 0, false
}
