package data_test

import (
	"io/fs"
	"strings"
	"testing"

	"athanor/engine/demo"
	"athanor/engine/train/data"
)

const (
	user   = `{"role":"user","content":"hi<|im_end|>"}`
	answer = `{"role":"assistant","content":"Yo."}`
	again  = `{"role":"user","content":"more"}`
	last   = `{"role":"assistant","content":"No\n"}`
	call   = `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}}]}`
	result = `{"role":"tool","content":"7","tool_call_id":"c1"}`
	tools  = `[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{}}}}]`
)

func chat(messages ...string) string { return `{"messages":[` + strings.Join(messages, ",") + `]}` }

const chatML = "{%- for message in messages %}\n    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n"

// mistral is the template of Mistral's instruction models, in short.
const mistral = "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"

func models(tb testing.TB) map[string]fs.FS {
	tb.Helper()
	im := []string{"<|im_start|>", "<|im_end|>", "<|endoftext|>"}
	llama := []string{"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"}
	return map[string]fs.FS{
		"demo":       demo.FS(),
		"chatml":     byteModel(tb, chatML, "", "<|im_end|>", im...),
		"base":       byteModel(tb, chatML, "", "<|endoftext|>", im...), // ends texts, not turns
		"none":       byteModel(tb, "", "<s>", "</s>", "<s>", "</s>"),
		"mistral":    byteModel(tb, mistral, "<s>", "</s>", "<s>", "</s>"),
		"open":       byteModel(tb, "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}", "", "</s>", "</s>"),
		"generation": byteModel(tb, "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content + eos_token }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}", "", "</s>", "</s>"),
		"rewriting":  byteModel(tb, "{% for m in messages %}{{ m.role + (messages | length | string) + m.content }}{% endfor %}", "", "</s>", "</s>"),
		"llama":      byteModel(tb, sharedTemplate(tb, "llama-3.1"), "<|begin_of_text|>", "<|eot_id|>", llama...),
		"gemma":      byteModel(tb, sharedTemplate(tb, "gemma-2"), "<bos>", "<eos>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
		"phi":        byteModel(tb, sharedTemplate(tb, "phi-3.5"), "<s>", "<|endoftext|>", "<s>", "<|endoftext|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"),
		"qwen2.5":    byteModel(tb, sharedTemplate(tb, "qwen2.5"), "", "<|im_end|>", im...),
		"qwen3":      byteModel(tb, sharedTemplate(tb, "qwen3"), "", "<|im_end|>", im...),
		"deepseek":   byteModel(tb, sharedTemplate(tb, "deepseek-r1-distill-qwen"), "<bos>", "<｜end▁of▁sentence｜>", "<bos>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
		"nemo":       byteModel(tb, sharedTemplate(tb, "mistral-nemo"), "<s>", "</s>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
	}
}

// TestMasks holds, token by token, what carries loss.
func TestMasks(t *testing.T) {
	t.Parallel()
	known := models(t)
	const qwenSystem = "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
	const llamaSystem = "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
	all := data.EncodeOptions{TrainOnInputs: "true"}
	tests := []struct {
		name, model, line string
		o                 data.EncodeOptions
		want              string
	}{
		{"ChatML of the embedded model", "demo", chat(user, answer), data.EncodeOptions{},
			"<|im_start|>user\nhi<|im_end|><|im_end|>\n<|im_start|>assistant\n[Yo.<|im_end|>]\n"},
		{"two answers", "chatml", chat(user, answer, again, last), data.EncodeOptions{TrainOnInputs: "auto"},
			"<|im_start|>user\nhi<|im_end|><|im_end|>\n<|im_start|>assistant\n[Yo.<|im_end|>]\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n[No\n<|im_end|>]\n"},
		{"answer of weight 0", "chatml", chat(user, strings.Replace(answer, `}`, `,"weight":0}`, 1), again, last), data.EncodeOptions{},
			"<|im_start|>user\nhi<|im_end|><|im_end|>\n<|im_start|>assistant\nYo.<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n[No\n<|im_end|>]\n"},
		{"answers of several weights", "chatml", chat(user, strings.Replace(answer, `}`, `,"weight":0.5}`, 1), again, last), data.EncodeOptions{},
			"<|im_start|>user\nhi<|im_end|><|im_end|>\n<|im_start|>assistant\n[Yo.<|im_end|>]0.5\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n[No\n<|im_end|>]\n"},
		{"weight of the sample", "chatml", strings.Replace(chat(user, answer), `]}`, `],"weight":0.25}`, 1), data.EncodeOptions{},
			"<|im_start|>user\nhi<|im_end|><|im_end|>\n<|im_start|>assistant\n[Yo.<|im_end|>]0.25\n"},
		{"inputs", "chatml", chat(user, answer), all,
			"<|im_start|>[user\nhi<|im_end|><|im_end|>\n<|im_start|>assistant\nYo.<|im_end|>\n]"},
		{"inputs but for one message", "chatml", chat(user, strings.Replace(answer, `}`, `,"weight":0}`, 1), again, last), all,
			"<|im_start|>[user\nhi<|im_end|><|im_end|>\n<|im_start|>assistant\n]Yo.<|im_end|>\n[<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\nNo\n<|im_end|>\n]"},
		{"parts of content", "chatml", chat(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, answer), data.EncodeOptions{},
			"<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n[Yo.<|im_end|>]\n"},
		{"the last message is the user's", "chatml", chat(user, answer, again), data.EncodeOptions{},
			"<|im_start|>user\nhi<|im_end|><|im_end|>\n<|im_start|>assistant\n[Yo.<|im_end|>]\n<|im_start|>user\nmore<|im_end|>\n"},
		{"turns that end with another token than texts", "base", chat(user, answer), data.EncodeOptions{},
			"<|im_start|>user\nhi<|im_end|><|im_end|>\n<|im_start|>assistant\n[Yo.<|im_end|>]\n"},
		{"instruction", "chatml", `{"prompt":"a","completion":"b"}`, data.EncodeOptions{},
			"<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>]\n"},
		{"instruction without a template", "none", `{"prompt":"a </s>","completion":" b"}`, data.EncodeOptions{}, "a </s>[ b</s>]"},
		{"instruction with inputs", "none", `{"prompt":"ab","completion":" c"}`, all, "a[b c</s>]"},
		{"text", "none", `{"text":"a </s> b","weight":2}`, data.EncodeOptions{}, "a[ </s> b</s>]2"},
		{"text of a model with a template", "chatml", `{"text":"<|im_start|>user"}`, data.EncodeOptions{}, "<[|im_start|>user<|im_end|>]"},
		{"Mistral", "mistral", chat(user, answer, again, last), data.EncodeOptions{},
			"<s>[INST] hi<|im_end|> [/INST][ Yo.</s>][INST] more [/INST][ No\n</s>]"},
		{"a template that ends no turn", "open", chat(user, answer, again, last), data.EncodeOptions{},
			"user: hi<|im_end|>\nassistant: [Yo.\n]user: more\nassistant: [No\n\n</s>]"},
		{"generation blocks", "generation", chat(user, answer, again, strings.Replace(last, `}`, `,"weight":0}`, 1)), data.EncodeOptions{},
			"<user>hi<|im_end|><assistant>[Yo.</s>]<user>more<assistant>No\n</s>"},
		{"Llama 3", "llama", chat(user, answer, again, last), data.EncodeOptions{},
			llamaSystem + "<|start_header_id|>user<|end_header_id|>\n\nhi<|im_end|><|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n[Yo.<|eot_id|>]<|start_header_id|>user<|end_header_id|>\n\nmore<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n[No<|eot_id|>]"},
		{"Gemma", "gemma", chat(user, answer, again, last), data.EncodeOptions{},
			"<bos><start_of_turn>user\nhi<|im_end|><end_of_turn>\n<start_of_turn>model\n[Yo.<end_of_turn>]\n<start_of_turn>user\nmore<end_of_turn>\n<start_of_turn>model\n[No<end_of_turn>]\n"},
		{"Phi", "phi", chat(user, answer, again, last), data.EncodeOptions{},
			"<|user|>\nhi<|im_end|><|end|>\n<|assistant|>\n[Yo.<|end|>]\n<|user|>\nmore<|end|>\n<|assistant|>\n[No\n<|end|>\n<|endoftext|>]"},
		{"Qwen 2.5 with a tool", "qwen2.5", strings.Replace(chat(user, call, result, last), `]}`, `],"tools":null}`, 1), data.EncodeOptions{},
			qwenSystem + "<|im_start|>user\nhi<|im_end|><|im_end|>\n<|im_start|>assistant\n[<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call><|im_end|>]\n<|im_start|>user\n<tool_response>\n7\n</tool_response><|im_end|>\n<|im_start|>assistant\n[No\n<|im_end|>]\n"},
		{"Qwen 3, which drops earlier thoughts", "qwen3", chat(user, `{"role":"assistant","content":"Yo.","reasoning":"why"}`, again, `{"role":"assistant","content":"No","reasoning_content":"so"}`), data.EncodeOptions{},
			"<|im_start|>user\nhi<|im_end|><|im_end|>\n<|im_start|>assistant\n[Yo.<|im_end|>]\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n[<think>\nso\n</think>\n\nNo<|im_end|>]\n"},
		{"DeepSeek, which asks with an opened thought", "deepseek", chat(user, answer, again, last), data.EncodeOptions{},
			"<bos><｜User｜>hi<|im_end|><｜Assistant｜>[Yo.<｜end▁of▁sentence｜>]<｜User｜>more<｜Assistant｜>[No\n<｜end▁of▁sentence｜>]"},
		{"Mistral Nemo", "nemo", chat(user, answer, again, last), data.EncodeOptions{},
			"<s>[INST]hi<|im_end|>[/INST][Yo.</s>][INST]more[/INST][No\n</s>]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e, err := data.NewEncoder(known[tt.model], tt.o)
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.Line([]byte(tt.line))
			if err != nil {
				t.Fatal(err)
			}
			if s := shown(t, known[tt.model], got.Samples[0]); s != tt.want {
				t.Errorf("got  %q\nwant %q", s, tt.want)
			}
		})
	}
}
