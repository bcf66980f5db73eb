"""Byte-level BPE: training, encoding, and writing as a Hugging Face tokenizer.json.

The split pattern, the byte alphabet and the special tokens are those of Qwen2, so every
loader that knows Qwen2 reads this tokenizer. Training is the plain algorithm: count pairs
over the distinct pieces, merge the most frequent, ties broken by the smaller pair of strings.
"""
import collections
import json

import regex

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{%- for message in messages %}\n"
    "    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|im_start|>assistant\\n' }}\n"
    "{%- endif %}\n")


def byte_alphabet():
    """The GPT-2 table byte -> printable character."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, n = {}, 0
    for b in range(256):
        if b in keep:
            table[b] = chr(b)
        else:
            table[b] = chr(256 + n)
            n += 1
    return table


BYTES = byte_alphabet()
UNBYTES = {c: b for b, c in BYTES.items()}


def merge_pair(symbols, pair):
    """symbols with every occurrence of pair joined, left to right."""
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return tuple(out)


def train(texts, vocab_size):
    """Returns the ordered list of merges that gives vocab_size entries with bytes and specials."""
    split = regex.compile(SPLIT)
    count = collections.Counter()
    for t in texts:
        count.update(split.findall(t))
    words = {tuple(BYTES[b] for b in w.encode()): n for w, n in count.items()}
    pairs = collections.Counter()
    where = collections.defaultdict(set)
    for w, n in words.items():
        for p in zip(w, w[1:]):
            pairs[p] += n
            where[p].add(w)
    merges, made = [], set()
    while len(made) < vocab_size - 256 - len(SPECIAL) and pairs:
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        made.add(best[0] + best[1])  # two merges may make the same symbol
        for w in sorted(where.pop(best)):
            n = words.pop(w)
            for p in zip(w, w[1:]):
                pairs[p] -= n
                if pairs[p] <= 0:
                    del pairs[p]
                if p != best:
                    where[p].discard(w)
            m = merge_pair(w, best)
            words[m] = words.get(m, 0) + n
            for p in zip(m, m[1:]):
                pairs[p] += n
                where[p].add(m)
    return merges


class Tokenizer:
    """Encodes and decodes with a list of merges; special tokens take the last ids."""

    def __init__(self, merges):
        self.merges = [tuple(m) for m in merges]
        self.rank = {m: i for i, m in enumerate(self.merges)}
        symbols = list(dict.fromkeys(sorted(BYTES.values()) + [a + b for a, b in self.merges]))
        self.id = {s: i for i, s in enumerate(symbols)}
        self.special = {s: len(symbols) + i for i, s in enumerate(SPECIAL)}
        self.size = len(symbols) + len(SPECIAL)
        self.symbol = {i: s for s, i in self.id.items()}
        self.split = regex.compile(SPLIT)
        self.cut = regex.compile("(" + "|".join(regex.escape(s) for s in SPECIAL) + ")")
        self.cache = {}

    def word(self, w):
        """The ids of one piece of the split."""
        got = self.cache.get(w)
        if got is not None:
            return got
        s = tuple(BYTES[b] for b in w.encode())
        while len(s) > 1:
            best = min(zip(s, s[1:]), key=lambda p: self.rank.get(p, 1 << 30))
            if best not in self.rank:
                break
            s = merge_pair(s, best)
        ids = [self.id[x] for x in s]
        if len(self.cache) < 200000:
            self.cache[w] = ids
        return ids

    def encode(self, text):
        """Ids of a text in which special tokens may stand."""
        ids = []
        for part in self.cut.split(text):
            if part in self.special:
                ids.append(self.special[part])
            else:
                for w in self.split.findall(part):
                    ids.extend(self.word(w))
        return ids

    def decode(self, ids):
        """The text of ids, special tokens left out."""
        raw = bytes(UNBYTES[c] for i in ids if i in self.symbol for c in self.symbol[i])
        return raw.decode("utf-8", "replace")

    def to_json(self):
        """The tokenizer.json document."""
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
        added = [{"id": i, "content": s, "single_word": False, "lstrip": False, "rstrip": False,
                  "normalized": False, "special": True} for s, i in self.special.items()]
        return {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False}, level]},
            "post_processor": level, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                      "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": self.id, "merges": [a + " " + b for a, b in self.merges]},
        }

    def config(self, context):
        """The tokenizer_config.json document."""
        return {
            "add_bos_token": False, "add_prefix_space": False,
            "added_tokens_decoder": {str(i): {"content": s, "lstrip": False, "normalized": False, "rstrip": False,
                                              "single_word": False, "special": True}
                                     for s, i in self.special.items()},
            "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None,
            "chat_template": CHAT_TEMPLATE, "clean_up_tokenization_spaces": False,
            "model_max_length": context, "tokenizer_class": "Qwen2Tokenizer",
        }


def load(path):
    """Reads a tokenizer.json that this module wrote."""
    with open(path, encoding="utf-8") as f:
        return Tokenizer([tuple(m.split(" ")) for m in json.load(f)["model"]["merges"]])
