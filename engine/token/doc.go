// Package token turns text into token ids and back, as a model's
// tokenizer.json says.
//
// # The pipeline
//
//	text ── added tokens ── normalizer ── added tokens ── pre-tokenizer ── model ── post-processor ── ids
//	        (raw text)                    (normalized)    (pieces)         (BPE, WordPiece, Unigram)
//
//	ids ── skip special ── decoder chain ── text
//
// The rules are those of the Rust library "tokenizers", which is what a
// tokenizer.json means; every step that the file can name is either done
// exactly or refused by its name with ErrUnsupported. Nothing is approximated.
//
// # Words
//
//	added token   a string that is cut out of the text before anything else
//	special       an added token that the file flags so; Decode can skip it
//	control       special, or named as bos, eos, pad … by the configuration, and
//	              longer than one character: what untrusted text must never be
//	              able to produce
//	piece         a stretch of text that the model sees on its own
//	byte-level    bytes spelled as 256 printable characters (GPT-2)
//	byte fallback unknown characters spelled as <0x00> … <0xFF> (SentencePiece)
//
// # Invariants
//
//   - A Tokenizer is immutable after loading and safe for concurrent use.
//   - Control tokens come only from matching them as added tokens, never out of
//     the model. Where they are not to be matched (EncodeOptions.ParseSpecial
//     false, untrusted segments) no text can produce one. The unknown token is
//     the one exception: it stands for what the vocabulary cannot spell.
//   - The output of a Stream, joined, equals Decode of the same ids.
//   - Whatever is read from a file is bounded: sizes, counts, ids, depth, the
//     growth of a text under normalization, the time of a regular expression.
//
// # Deliberate differences from the Rust library
//
//   - In a run of byte-fallback tokens with a broken UTF-8 sequence the valid
//     characters are kept and each stray byte becomes one U+FFFD (as
//     SentencePiece does); Rust replaces the whole run, which cannot be
//     streamed.
//   - Control tokens cannot come out of the model (see above); Rust lets a
//     Unigram vocabulary produce "</s>" from look-alike text.
//   - The end-of-word suffix of a BPE under a ByteLevel decoder (CLIP) decodes
//     to a space, as the Python and JavaScript libraries have it, not to "</w>".
//   - Where an added token strips white space that holds another added token,
//     no text is encoded twice.
//
// References: Sennrich et al. 2016 (BPE), Schuster and Nakajima 2012
// (WordPiece), Kudo 2018 (Unigram), Kudo and Richardson 2018 (SentencePiece),
// Radford et al. 2019 (byte-level BPE).
package token
