package dataset_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"athanor/server/files/dataset"
)

func check(t *testing.T, purpose, kind, content string) *dataset.Report {
	t.Helper()
	r, err := dataset.Check(t.Context(), strings.NewReader(content), dataset.Options{Purpose: purpose, Type: kind})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const (
	good      = `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`
	user      = `{"role":"user","content":"a"}`
	assistant = `{"role":"assistant","content":"b"}`
	pair      = `{"input":{"messages":[` + user + `]},"preferred_output":[` + assistant + `],"non_preferred_output":[` + assistant + `]}`
)

// broken are data sets with the first reason that each gets.
var broken = []struct{ name, data, want string }{
	{"empty file", "", "Line 1: the file holds no samples"},
	{"empty line", good + "\n\n" + good + "\n", "Line 2: the line is empty"},
	{"spaces", "  \t\n", "Line 1: the line is empty"},
	{"byte order mark", "\xef\xbb\xbf" + good, "Line 1: the line begins with a byte order mark: save the file as UTF-8 without one"},
	{"UTF-8", good + "\n" + `{"text":"a` + "\xff" + `"}`, "Line 2: the line is not valid UTF-8: byte 11 is 0xff"},
	{"UTF-16", "{\x00\"\x00", "Line 1: the line is not valid JSON: '\\x00' at byte 2 where a name in double quotes is expected"},
	{"Latin-1", `{"text":"caf` + "\xe9" + `"}`, "Line 1: the line is not valid UTF-8: byte 13 is 0xe9"},
	{"not JSON", "hello", "Line 1: the line is not valid JSON: 'h' at byte 1 where a value is expected"},
	{"single quotes", `{'text':'a'}`, `Line 1: the line is not valid JSON: '\'' at byte 2 where a name in double quotes is expected`},
	{"cut", `{"text":"a`, "Line 1: the line is not valid JSON: the string that begins at byte 9 has no end"},
	{"cut in a list", `{"messages":[`, "Line 1: the line is not valid JSON: it ends where a value is expected"},
	{"cut in an object", `{"text":"a"`, "Line 1: the line is not valid JSON: it ends where a comma or '}' is expected"},
	{"cut in an escape", `{"text":"a\`, "Line 1: the line is not valid JSON: it ends inside an escape sequence"},
	{"comma at the end", `{"text":"a",}`, "Line 1: the line is not valid JSON: '}' at byte 13 where a name in double quotes is expected"},
	{"no colon", `{"text" "a"}`, `Line 1: the line is not valid JSON: '"' at byte 9 where a colon is expected`},
	{"two objects", `{"text":"a"} {"text":"b"}`, "Line 1: the line goes on after its JSON value, at byte 14"},
	{"tab in a string", "{\"text\":\"a\tb\"}", "Line 1: the line is not valid JSON: the control character 0x09 at byte 11 must be escaped"},
	{"unknown escape", `{"text":"a\x41"}`, "Line 1: the line is not valid JSON: the escape at byte 11 does not exist"},
	{"short escape", `{"text":"\u12"}`, "Line 1: the line is not valid JSON: the escape at byte 10 needs four hexadecimal digits"},
	{"half a pair", `{"text":"\ud83d"}`, "Line 1: the line is not valid JSON: the escape at byte 10 is half of a surrogate pair"},
	{"other half", `{"text":"\ude00"}`, "Line 1: the line is not valid JSON: the escape at byte 10 is half of a surrogate pair"},
	{"NaN", `{"text":"a","weight":NaN}`, "Line 1: the line is not valid JSON: 'N' at byte 22 where a value is expected"},
	{"leading zero", `{"text":"a","weight":01}`, "Line 1: the line is not valid JSON: '1' at byte 23 where a comma or '}' is expected"},
	{"no digits", `{"text":"a","weight":1.}`, "Line 1: the line is not valid JSON: '}' at byte 24 where a digit is expected"},
	{"deep", `{"text":` + strings.Repeat("[", 200), "Line 1: the line is not valid JSON: it is nested deeper than 100 levels"},
	{"a list", `[` + good + `]`, "Line 1: the line must be a JSON object, not a list"},
	{"a string", `"a"`, "Line 1: the line must be a JSON object, not a string"},
	{"null", `null`, "Line 1: the line must be a JSON object, not null"},
	{"an array of lines", "[\n" + good + "\n]", "Line 1: the line is not valid JSON: it ends where a value is expected"},
	{"no field", `{}`, "Line 1: the line must contain `text`, or `messages`, or `prompt` and `completion`, or `input`, `preferred_output` and `non_preferred_output`"},
	{"other field", `{"foo":1}`, "Line 1: the line must contain `text`, or `messages`, or `prompt` and `completion`, or `input`, `preferred_output` and `non_preferred_output`"},
	{"extra field", `{"text":"a","id":7}`, "Line 1: `id` is not a field of the general format"},
	{"extra field with a long name", `{"text":"a","` + strings.Repeat("x", 70) + `":7}`, "Line 1: `" + strings.Repeat("x", 60) + "...` is not a field of the general format"},
	{"twice", `{"text":"a","text":"b"}`, "Line 1: `text` is given twice"},
	{"twice, escaped", `{"text":"a","t\u0065xt":"b"}`, "Line 1: `text` is given twice"},
	{"two formats", `{"text":"a","messages":[]}`, "Line 1: the line mixes fields of the general and the conversation format"},
	{"half of another format", `{"text":"a","prompt":"b"}`, "Line 1: the line mixes fields of the general and the instruction format"},
	{"another format later", good + "\n" + `{"text":"a"}`, "Line 2: the line has the general format, the lines before have the conversation format"},
	{"text is a number", `{"text":1}`, "Line 1: `text` must be a string, not a number"},
	{"text is null", `{"text":null}`, "Line 1: `text` must be a string, not null"},
	{"no completion", `{"prompt":"a"}`, "Line 1: the line must contain a `completion` field, as it has the instruction format"},
	{"no prompt", `{"completion":"a"}`, "Line 1: the line must contain a `prompt` field, as it has the instruction format"},
	{"completion is a list", `{"prompt":"a","completion":["b"]}`, "Line 1: `completion` must be a string, not a list"},
	{"weight is text", `{"text":"a","weight":"1"}`, "Line 1: `weight` must be a number of at least 0, not a string"},
	{"weight below zero", `{"text":"a","weight":-0.5}`, "Line 1: `weight` must be a finite number of at least 0, not `-0.5`"},
	{"weight over the bound", `{"text":"a","weight":1e7}`, "Line 1: `weight` must be at most 1e+06, not `1e7`"},
	{"weight too large", `{"text":"a","weight":1e999}`, "Line 1: `weight` must be a finite number of at least 0, not `1e999`"},
	{"tools without messages", `{"text":"a","tools":[]}`, "Line 1: `tools` is not a field of the general format"},
	{"messages are an object", `{"messages":{}}`, "Line 1: `messages` must be a list of messages, not an object"},
	{"no messages", `{"messages":[]}`, "Line 1: `messages` must not be empty"},
	{"message is a string", `{"messages":["a"]}`, "Line 1: `messages[0]` must be an object, not a string"},
	{"no role", `{"messages":[` + user + `,{"content":"b"}]}`, "Line 1: `messages[1]` must contain a `role` field"},
	{"role is a number", `{"messages":[{"role":1,"content":"b"}]}`, "Line 1: `messages[0].role` must be a string, not a number"},
	{"unknown role", `{"messages":[{"role":"bot","content":"b"}]}`, "Line 1: `messages[0].role` must be `system`, `user`, `assistant` or `tool`, not `bot`"},
	{"role in capitals", `{"messages":[{"role":"User","content":"b"}]}`, "Line 1: `messages[0].role` must be `system`, `user`, `assistant` or `tool`, not `User`"},
	{"role with quotes", "{\"messages\":[{\"role\":\"a`\\nb\",\"content\":\"b\"}]}", "Line 1: `messages[0].role` must be `system`, `user`, `assistant` or `tool`, not `a' b`"},
	{"roles repeat", `{"messages":[` + user + `,` + user + `,` + assistant + `]}`, "Line 1: `messages[1].role` must not be `user` again: after an optional system message the roles take turns"},
	{"no answer", `{"messages":[` + user + `]}`, "Line 1: `messages` must contain a message of the assistant"},
	{"no content", `{"messages":[{"role":"user"}]}`, "Line 1: `messages[0]` must contain a `content` field"},
	{"content is null", `{"messages":[{"role":"user","content":null}]}`, "Line 1: `messages[0].content` must be a string or a list of parts, not null"},
	{"content is a number", `{"messages":[{"role":"user","content":1}]}`, "Line 1: `messages[0].content` must be a string or a list of parts, not a number"},
	{"no parts", `{"messages":[{"role":"user","content":[]}]}`, "Line 1: `messages[0].content` must not be an empty list"},
	{"part is a string", `{"messages":[{"role":"user","content":["a"]}]}`, "Line 1: `messages[0].content[0]` must be an object, not a string"},
	{"part without type", `{"messages":[{"role":"user","content":[{"text":"a"}]}]}`, "Line 1: `messages[0].content[0]` must contain a `type` field"},
	{"part without text", `{"messages":[{"role":"user","content":[{"type":"text"}]}]}`, "Line 1: `messages[0].content[0]` must contain a `text` field"},
	{"part of another type", `{"messages":[{"role":"user","content":[{"type":"audio"}]}]}`, "Line 1: `messages[0].content[0].type` must be `text`, not `audio`"},
	{"image", `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}}]}]}`, "Line 1: `messages[0].content[1]` is an image: training on images is not supported"},
	{"message weight", `{"messages":[` + user + `,{"role":"assistant","content":"b","weight":2}]}`, "Line 1: `messages[1].weight` must be 0 or 1, not `2`"},
	{"message weight is no integer", `{"messages":[{"role":"user","content":"b","weight":0.5}]}`, "Line 1: `messages[0].weight` must be 0 or 1, not `0.5`"},
	{"message weight is true", `{"messages":[{"role":"user","content":"b","weight":true}]}`, "Line 1: `messages[0].weight` must be 0 or 1, not a boolean"},
	{"role twice", `{"messages":[{"role":"user","role":"assistant","content":"b"}]}`, "Line 1: `messages[0].role` is given twice"},
	{"reasoning of the user", `{"messages":[{"role":"user","content":"b","reasoning":"c"}]}`, "Line 1: `messages[0].reasoning` is only for messages of the assistant, not of the user"},
	{"reasoning is a list", `{"messages":[{"role":"assistant","reasoning":[]}]}`, "Line 1: `messages[0].reasoning` must be a string, not a list"},
	{"two reasonings", `{"messages":[{"role":"assistant","reasoning":"a","reasoning_content":"b"}]}`, "Line 1: `messages[0]` must not have both `reasoning` and `reasoning_content`"},
	{"name is a number", `{"messages":[{"role":"user","content":"b","name":1}]}`, "Line 1: `messages[0].name` must be a string, not a number"},
	{"calls of the user", `{"messages":[{"role":"user","content":"b","tool_calls":[{}]}]}`, "Line 1: `messages[0].tool_calls` is only for messages of the assistant, not of the user"},
	{"no calls", `{"messages":[{"role":"assistant","tool_calls":[]}]}`, "Line 1: `messages[0].tool_calls` must not be empty"},
	{"calls are a string", `{"messages":[{"role":"assistant","tool_calls":"f"}]}`, "Line 1: `messages[0].tool_calls` must be a list, not a string"},
	{"call without function", `{"messages":[{"role":"assistant","tool_calls":[{"id":"1"}]}]}`, "Line 1: `messages[0].tool_calls[0]` must contain a `function` field"},
	{"call of another type", `{"messages":[{"role":"assistant","tool_calls":[{"type":"code"}]}]}`, "Line 1: `messages[0].tool_calls[0].type` must be `function`, not `code`"},
	{"call without name", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":""}}]}]}`, "Line 1: `messages[0].tool_calls[0].function` must contain a `name` field"},
	{"call without arguments", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}]}`, "Line 1: `messages[0].tool_calls[0].function` must contain an `arguments` field"},
	{"arguments are a list", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":[]}}]}]}`, "Line 1: `messages[0].tool_calls[0].function.arguments` must be a string or an object, not a list"},
	{"tools are an object", `{"messages":[` + assistant + `],"tools":{}}`, "Line 1: `tools` must be a list, not an object"},
	{"tool is a string", `{"messages":[` + assistant + `],"tools":["f"]}`, "Line 1: `tools[0]` must be an object, not a string"},
	{"tool has no function", `{"messages":[` + assistant + `],"tools":[{"type":"function"}]}`, "Line 1: `tools[0]` must contain a `function` field"},
	{"tool has an empty name", `{"messages":[` + assistant + `],"tools":[{"function":{"name":""}}]}`, "Line 1: `tools[0].function.name` must not be empty"},
	{"parameters are a string", `{"messages":[` + assistant + `],"tools":[{"function":{"name":"f","parameters":"{}"}}]}`, "Line 1: `tools[0].function.parameters` must be an object, not a string"},
	{"input is a string", strings.Replace(pair, `{"messages":[`+user+`]}`, `"a"`, 1), "Line 1: `input` must be an object, not a string"},
	{"input without messages", strings.Replace(pair, `{"messages":[`+user+`]}`, `{}`, 1), "Line 1: `input` must contain a `messages` field"},
	{"input with another field", strings.Replace(pair, `{"messages":[`+user+`]}`, `{"messages":[],"x":1}`, 1), "Line 1: `x` is not a field of `input`"},
	{"empty input", strings.Replace(pair, user, ``, 1), "Line 1: `input.messages` must not be empty"},
	{"broken message in input", strings.Replace(pair, user, `{"content":"a"}`, 1), "Line 1: `input.messages[0]` must contain a `role` field"},
	{"input ends with the assistant", strings.Replace(pair, user, user+`,`+assistant, 1), "Line 1: `input.messages` must not end with a message of the assistant"},
	{"no other output", `{"input":{"messages":[` + user + `]},"preferred_output":[` + assistant + `]}`, "Line 1: the line must contain a `non_preferred_output` field, as it has the preference_openai format"},
	{"output is an object", strings.Replace(pair, `[`+assistant+`]`, assistant, 1), "Line 1: `preferred_output` must be a list with one message, not an object"},
	{"two outputs", strings.Replace(pair, `[`+assistant+`]`, `[`+assistant+`,`+assistant+`]`, 1), "Line 1: `preferred_output` must hold exactly one message, not 2"},
	{"no output", strings.Replace(pair, `"non_preferred_output":[`+assistant+`]`, `"non_preferred_output":[]`, 1), "Line 1: `non_preferred_output` must hold exactly one message, not 0"},
	{"output of the user", strings.Replace(pair, assistant, user, 1), "Line 1: `preferred_output[0].role` must be `assistant`, not `user`"},
	{"output without content", strings.Replace(pair, assistant, `{"role":"assistant"}`, 1), "Line 1: `preferred_output[0]` must contain a `content` field"},
}

func TestBrokenData(t *testing.T) {
	t.Parallel()
	if len(broken) < 60 {
		t.Errorf("only %d broken data sets", len(broken))
	}
	for _, tt := range broken {
		r := check(t, dataset.FineTune, "jsonl", tt.data)
		if r.Valid() || r.Problems[0].String() != tt.want {
			t.Errorf("%s: got %v, want %q", tt.name, r.Problems, tt.want)
		}
	}
}

func TestBrokenBatchesAndTables(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, purpose, kind, data, want string }{
		{"no id", dataset.Batch, "jsonl", `{"body":{}}`, "Line 1: the line must contain a `custom_id` field"},
		{"id is a number", dataset.Batch, "jsonl", `{"custom_id":1,"body":{}}`, "Line 1: `custom_id` must be a string, not a number"},
		{"empty id", dataset.Batch, "jsonl", `{"custom_id":"","body":{}}`, "Line 1: `custom_id` must have 1 to 64 characters, not 0"},
		{"long id", dataset.Batch, "jsonl", `{"custom_id":"` + strings.Repeat("é", 65) + `","body":{}}`, "Line 1: `custom_id` must have 1 to 64 characters, not 65"},
		{"no body", dataset.Batch, "jsonl", `{"custom_id":"a"}`, "Line 1: the line must contain a `body` field"},
		{"body is text", dataset.Batch, "jsonl", `{"custom_id":"a","body":"{}"}`, "Line 1: `body` must be an object, not a string"},
		{"evaluation is a list", dataset.Eval, "jsonl", `[]`, "Line 1: the line must be a JSON object, not a list"},
		{"training table", dataset.FineTune, "csv", "a,b\n", "Line 1: the file is CSV, which is only for evaluation: use JSON lines"},
		{"empty table", dataset.Eval, "csv", "", "Line 1: the file holds no samples"},
		{"only a header", dataset.Eval, "csv", "a,b\n", "Line 1: the file holds no samples"},
		{"empty header", dataset.Eval, "csv", "\na\n", "Line 1: the line is empty"},
		{"column without a name", dataset.Eval, "csv", "a,,c\n1,2,3\n", "Line 1: the name of column 2 is empty"},
		{"column twice", dataset.Eval, "csv", "a,b,a\n1,2,3\n", "Line 1: the column `a` is there twice"},
		{"too few", dataset.Eval, "csv", "a,b\n1,2\n3\n", "Line 3: the record has 1 fields, the header has 2"},
		{"too many", dataset.Eval, "csv", "a,b\n1,2,3\n", "Line 2: the record has 3 fields, the header has 2"},
		{"quote inside", dataset.Eval, "csv", "a,b\n1,x\"y\n", "Line 2: field 2 has a quote inside and does not begin with one"},
		{"text after a quote", dataset.Eval, "csv", "a,b\n\"1\"x,2\n", "Line 2: field 1 goes on after its closing quote"},
		{"open quote", dataset.Eval, "csv", "a,b\n1,2\n1,\"2\n3,4\n", "Line 3: a quoted field has no end"},
		{"UTF-8", dataset.Eval, "csv", "a,b\n1,\xff\n", "Line 2: the line is not valid UTF-8: byte 3 is 0xff"},
		{"mark", dataset.Eval, "csv", "\xef\xbb\xbfa,b\n1,2\n", "Line 1: the line begins with a byte order mark: save the file as UTF-8 without one"},
		{"empty line", dataset.Eval, "csv", "a,b\n\n1,2\n", "Line 2: the line is empty"},
	}
	for _, tt := range tests {
		r := check(t, tt.purpose, tt.kind, tt.data)
		if r.Valid() || r.Problems[0].String() != tt.want {
			t.Errorf("%s: got %v, want %q", tt.name, r.Problems, tt.want)
		}
	}
}

func TestGoodData(t *testing.T) {
	t.Parallel()
	call := `{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}`
	tests := []struct {
		name, purpose, kind, data string
		want                      dataset.Report
	}{
		{"general", dataset.FineTune, "jsonl", `{"text":"a"}` + "\n" + `{"text":"\ud83d\ude00 é","weight":null,"tools":null}`, dataset.Report{Format: dataset.General, Lines: 2}},
		{"instruction with weights", dataset.FineTune, "jsonl", `{"prompt":"a","completion":"","weight":0.25}`, dataset.Report{Format: dataset.Instruction, Lines: 1, HasSampleWeights: true}},
		{"conversation, carriage returns", dataset.FineTune, "jsonl", good + "\r\n" + good + "\r\n", dataset.Report{Format: dataset.Conversation, Lines: 2, Duplicates: 1}},
		{"system and parts", dataset.FineTune, "jsonl", `{"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a"}]},` + assistant + `]}`, dataset.Report{Format: dataset.Conversation, Lines: 1}},
		{"message weights", dataset.FineTune, "jsonl", `{"messages":[` + user + `,{"role":"assistant","content":"b","weight":0}]}`, dataset.Report{Format: dataset.Conversation, Lines: 1, HasMessageWeights: true}},
		{"reasoning alone", dataset.FineTune, "jsonl", `{"messages":[` + user + `,{"role":"assistant","reasoning":"b"}]}`, dataset.Report{Format: dataset.Conversation, Lines: 1, HasReasoning: true}},
		{"tools", dataset.FineTune, "jsonl", `{"messages":[` + user + `,{"role":"assistant","content":null,"tool_calls":[` + call + `,` + call + `]},{"role":"tool","content":"1","tool_call_id":"1"},{"role":"tool","content":"2"},` + assistant + `],"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{}}}]}`,
			dataset.Report{Format: dataset.Conversation, Lines: 1, HasTools: true, HasParallelToolCalls: true}},
		{"preference", dataset.FineTune, "jsonl", pair, dataset.Report{Format: dataset.Preference, Lines: 1}},
		{"evaluation", dataset.Eval, "jsonl", `{"x":1}` + "\n" + `{"y":[]}`, dataset.Report{Lines: 2}},
		{"batch", dataset.Batch, "jsonl", `{"custom_id":"a","body":{},"method":"POST"}`, dataset.Report{Lines: 1}},
		{"table", dataset.Eval, "csv", "a,b\n1,\"x\ny, \"\"z\"\"\"\n\"\",\n", dataset.Report{Lines: 2}},
		{"table with an empty line in quotes", dataset.Eval, "csv", "a\n\"x\n\ny\"\nz", dataset.Report{Lines: 2}},
	}
	for _, tt := range tests {
		r := check(t, tt.purpose, tt.kind, tt.data)
		if got, want := fmt.Sprintf("%+v", *r), fmt.Sprintf("%+v", tt.want); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, want)
		}
	}
}

func TestProblemsAreCountedAndBounded(t *testing.T) {
	t.Parallel()
	data := strings.Repeat("x\n", 250) + good + "\n" + strings.Repeat("{\"text\":\"a\"}\n", 50)
	r := check(t, dataset.FineTune, "jsonl", data)
	if r.Errors != 300 || len(r.Problems) != 100 || r.Lines != 301 || r.Problems[99].Line != 100 || r.Format != dataset.Conversation {
		t.Errorf("%d errors, %d kept, %d lines, the last of line %d", r.Errors, len(r.Problems), r.Lines, r.Problems[99].Line)
	}
}

func TestLongLinesAreSkipped(t *testing.T) {
	t.Parallel()
	long := `{"text":"` + strings.Repeat("x", dataset.MaxLine) + `"}`
	r := check(t, dataset.FineTune, "jsonl", `{"text":"a"}`+"\n"+long+"\n"+`{"text":"b"}`+"\n"+"y")
	want := "[Line 2: the line is longer than 16777216 bytes Line 4: the line is not valid JSON: 'y' at byte 1 where a value is expected]"
	if got := fmt.Sprint(r.Problems); got != want || r.Lines != 4 {
		t.Errorf("got %s, %d lines", got, r.Lines)
	}
	fits := `{"text":"` + strings.Repeat("x", dataset.MaxLine-11) + `"}`
	if r := check(t, dataset.FineTune, "jsonl", fits); !r.Valid() {
		t.Errorf("a line of exactly the limit: %v", r.Problems)
	}
	values := `{"text":[` + strings.Repeat("0,", 1<<20) + "0]}"
	if r := check(t, dataset.FineTune, "jsonl", values); r.Problems[0].Reason != "the line is not valid JSON: it holds more than 1048576 values" {
		t.Errorf("too many values: %v", r.Problems)
	}
	if r := check(t, dataset.Eval, "csv", "a\n\""+strings.Repeat("x\n", dataset.MaxLine/2)+"\n1\n"); len(r.Problems) == 0 || r.Problems[0].Reason != "the record is longer than 16777216 bytes" {
		t.Errorf("a record without an end: %v", r.Problems)
	}
}

// TestPublicData checks the data sets that lie beside the repository.
func TestPublicData(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "..", "..", "shared", "datasets")
	for name, format := range map[string]string{
		"finetune/identity.chat.jsonl": dataset.Conversation, "finetune/seed_tasks.chat.jsonl": dataset.Conversation,
		"preference/dpo_en_demo.jsonl": dataset.Preference,
	} {
		f, err := os.Open(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			t.Skipf("no public data: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		r, err := dataset.Check(t.Context(), f, dataset.Options{Purpose: dataset.FineTune, Type: "jsonl"})
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if !r.Valid() || r.Format != format || r.Lines == 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// failing ends with an error after some good lines.
type failing struct{ r io.Reader }

func (f failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err == io.EOF {
		err = errors.New("the disk is gone")
	}
	return n, err
}

func TestReadErrorsAndContext(t *testing.T) {
	t.Parallel()
	o := dataset.Options{Purpose: dataset.FineTune, Type: "jsonl"}
	if _, err := dataset.Check(t.Context(), failing{strings.NewReader(good + "\n")}, o); err == nil || err.Error() != "read line 2: the disk is gone" {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	cancel(stop)
	if _, err := dataset.Check(ctx, strings.NewReader(strings.Repeat("{}\n", 5000)), o); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	if _, err := dataset.Check(t.Context(), strings.NewReader(""), dataset.Options{Purpose: "other", Type: "jsonl"}); err == nil {
		t.Error("an unknown purpose is checked")
	}
}
