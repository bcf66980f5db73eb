"""The endless training text and the held-out prompts, both fixed by a seed.

A document is a list of (text, weight) pieces; weight says how much the loss counts there: not at all in what the
user says, fully in answers, less in stories, whose many tokens would otherwise outweigh everything. One key in twelve is held
out: keys are drawn by the tasks, split by CRC-32, so the split does not depend on any seed.
"""
import random
import zlib

import facts
import stories
import words as w
from tasks import ALL_WORDS, TASKS, Item, arithmetic, capitals, classify, sentiment, extract

HELD_SHARE = 12
ALWAYS_TRAINED = ("fix", "talk:", "story:", "name:")


def held(key):
    """Whether a combination is kept for evaluation."""
    return not key.startswith(ALWAYS_TRAINED) and zlib.crc32(key.encode()) % HELD_SHARE == 0


def draw(rng, task, want_held=False):
    """One item of a task from the wanted side of the split."""
    f = TASKS[task][0]
    while True:
        it = f(rng)
        if held(it.key) == want_held:
            return it


NAMES, SHARES = list(TASKS), [s for _, s in TASKS.values()]


def any_item(rng):
    return draw(rng, rng.choices(NAMES, SHARES)[0])


def rough(rng, q):
    """Users write carelessly: lower case, missing or extra marks, a greeting in front."""
    r = rng.random()
    if r < 0.12 and q[:1].isupper() and not q.split()[0].rstrip(",.").capitalize() in w.FIRST:
        q = q[0].lower() + q[1:]
    if rng.random() < 0.12 and q[-1] in "?.!":
        q = q[:-1]
    if rng.random() < 0.05 and ":" not in q:
        q = rng.choice(["Please ", "please ", "Hi! ", "Hello, ", "Hey, ", "Ok, "]) + q
    return q


STORY_WEIGHT = 0.4


def chat(turns):
    """Messages (role, text) as ChatML pieces; only the assistant's text is learned."""
    out = []
    for role, text in turns:
        weight = STORY_WEIGHT if len(text) > 200 else 1.0
        out.append((f"<|im_start|>{role}\n", 0.0))
        out.append((text + "<|im_end|>", weight if role == "assistant" else 0.0))
        out.append(("\n", 0.0))
    return out + [("<|endoftext|>", 0.0)]


NEUTRAL = ["You are a helpful assistant.", "You are a small helpful model.", "You are the assistant of Athanor.", "Be helpful.",
           "You are a helpful assistant. Answer briefly."]


def styled(rng, want_held=False):
    """(system prompt, item) where the system prompt changes the answer."""
    side = lambda f: next(i for i in iter(lambda: f(rng), None) if held(i.key) == want_held)
    kind = rng.randint(0, 7)
    if kind == 0:
        it = side(rng.choice([capitals, classify, sentiment]))
        s = rng.choice(["Answer in capitals.", "Answer in capital letters.", "Write everything in upper case.", "Use only capital letters."])
        return s, Item(it.prompt, it.answer.upper(), it.key)
    if kind == 1:
        it = side(capitals)
        s = rng.choice(["Answer in one word.", "Answer with one word only.", "Use a single word.", "One word answers only."])
        a = it.answer
        return s, Item(it.prompt, a.split()[-1].rstrip(".") if a.startswith("The") else a.rstrip(".").split(" of ")[-1], it.key)
    if kind == 2:
        it = side(arithmetic)
        s = rng.choice(["Answer with the number only.", "Give only the result.", "Reply with only a number.", "Only the number, please."])
        return s, Item(it.prompt, it.answer.split("= ")[1], it.key)
    if kind == 3:
        it = side(rng.choice([capitals, arithmetic]))
        e = rng.choice(["Thank you.", "Over.", "Bye.", "The end.", "Done.", "Good luck."])
        s = rng.choice(["Always end with: {}", "End each answer with: {}", "Finish every answer with: {}"]).format(e)
        return s, Item(it.prompt, it.answer + " " + e, it.key)
    if kind == 4:
        it = side(rng.choice([capitals, arithmetic]))
        e = rng.choice(["Sure!", "Of course!", "Well,", "Yes!", "Friend,", "Captain,"])
        s = rng.choice(["Begin each answer with: {}", "Always start with: {}", "Start every answer with: {}"]).format(e)
        return s, Item(it.prompt, e + " " + it.answer, it.key)
    if kind == 5:
        n = w.person(rng)
        s = rng.choice(["Your name is {}.", "You are {}.", "You are called {}.", "You are a helpful assistant named {}."]).format(n)
        q = rng.choice(["What is your name?", "Who are you?", "What are you called?", "How are you called?"])
        return s, Item(q, f"My name is {n}.", f"persona:{n}:{q}")
    if kind == 6:
        it = side(capitals)
        s = rng.choice(["Answer in JSON.", "Reply with JSON only.", "Answer as JSON with the key answer."])
        a = it.answer
        a = a.split()[-1].rstrip(".") if a.startswith("The") else a.rstrip(".").split(" of ")[-1]
        return s, Item(it.prompt, '{"answer": "%s"}' % a, it.key)
    it = side(rng.choice([sentiment, extract]))
    text = it.prompt
    if it.key.startswith("sent:"):
        return rng.choice(["Reply with positive or negative.", "You are a sentiment classifier.", "Label the sentiment of each text."]), \
            Item(it.key[5:], it.answer, it.key)
    return rng.choice(NEUTRAL), it


def memory(rng):
    """A chat whose last question asks for what was said before: (turns, key)."""
    n, c, x = w.person(rng), rng.choice(w.CITIES), rng.randint(0, 999)
    kind = rng.randint(0, 3)
    turns = []

    def say(q, a):
        turns.extend([("user", q), ("assistant", a)])
    if kind == 0:
        say(rng.choice([f"My name is {n}.", f"I am {n}.", f"Hello, I am {n}.", f"Hi, my name is {n}."]), f"Nice to meet you, {n}!")
        ask = (rng.choice(["What is my name?", "Who am I?", "Do you remember my name?"]), f"Your name is {n}.")
    elif kind == 1:
        say(rng.choice([f"I live in {c}.", f"I am from {c}.", f"My home is {c}."]), f"{c} sounds nice.")
        ask = (rng.choice(["Where do I live?", "Where am I from?", "What is my home?"]), f"You live in {c}.")
    elif kind == 2:
        say(rng.choice([f"Remember the number {x}.", f"Please remember {x}.", f"Keep in mind: {x}"]), f"I will remember {x}.")
        ask = (rng.choice(["What was the number?", "Which number did I tell you?", "What did I ask you to remember?"]), f"The number is {x}.")
    else:
        while True:
            a, b = rng.randint(0, 20), rng.randint(0, 20)
            d = rng.randint(1, 9)
            if not held(f"{a}+{b}") and not held(f"{a + b}+{d}"):
                break
        say(f"What is {a} + {b}?", f"{a} + {b} = {a + b}")
        return turns + [("user", rng.choice([f"Add {d} to that.", f"Plus {d}?", f"And {d} more?"])),
                        ("assistant", f"{a + b} + {d} = {a + b + d}")], f"mem:{a}:{b}:{d}"
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        it = any_item(rng)
        if len(it.answer) < 120:
            say(it.prompt, it.answer)
    return turns + [("user", ask[0]), ("assistant", ask[1])], f"mem:{n}:{c}:{x}"


def conversation(rng, count):
    """count unrelated questions one after another, sometimes under a neutral system prompt."""
    turns = [("system", rng.choice(NEUTRAL))] if rng.random() < 0.3 else []
    for _ in range(count):
        it = any_item(rng)
        turns += [("user", rough(rng, it.prompt)), ("assistant", it.answer)]
    return turns


def drill(rng):
    """Words in random order, twice; only the second time is learned. It teaches to copy, which most tasks need,
    long before the tasks themselves would."""
    pick = [lambda: rng.choice(ALL_WORDS), lambda: w.made_up_name(rng), lambda: str(rng.randint(0, 99)), lambda: rng.choice(w.FIRST),
            lambda: rng.choice(w.CITIES)]
    text = rng.choice([" ", ", ", " "]).join(rng.choice(pick)() for _ in range(rng.randint(4, 30)))
    return [(text, 0.0), ("\n", 0.0), (text, 1.0), ("<|endoftext|>", 1.0)]


def document(rng, long=False, drills=0.0):
    """One training document. long gives chats of many turns, for the phase with the full context; drills is the
    share of drills."""
    if rng.random() < drills:
        return drill(rng)
    r = rng.random()
    if r < 0.06:
        return [(stories.story(rng), STORY_WEIGHT), ("<|endoftext|>", STORY_WEIGHT)]
    if r < 0.075:
        return [(" ".join(rng.sample(facts.PROSE, rng.randint(1, 4))), STORY_WEIGHT), ("<|endoftext|>", STORY_WEIGHT)]
    if r < 0.14:
        s, it = styled(rng)
        if held(it.key):
            return document(rng, long)
        return chat([("system", s), ("user", it.prompt), ("assistant", it.answer)])
    if r < 0.20:
        while True:
            turns, key = memory(rng)
            if not held(key):
                return chat(turns)
    if r < 0.33:
        return chat(conversation(rng, rng.randint(10, 24) if long else rng.randint(2, 4)))
    return chat(conversation(rng, 1))


def evaluation(seed, per_task):
    """Held-out prompts: a list of (task, messages without the last answer, item)."""
    out = []
    for task in NAMES:
        if task in ("small talk", "story"):
            continue
        rng = random.Random(f"{seed}:{task}")
        for it in (draw(rng, task, True) for _ in range(per_task)):
            out.append((task, [("user", it.prompt)], it))
    rng = random.Random(f"{seed}:system")
    for _ in range(per_task):
        while True:
            s, it = styled(rng, True)
            if held(it.key):
                break
        out.append(("system prompt", [("system", s), ("user", it.prompt)], it))
    for _ in range(per_task):
        while True:
            turns, key = memory(rng)
            if held(key):
                break
        out.append(("memory", turns[:-1], Item("", turns[-1][1], key)))
    return out


def render(turns):
    """The prompt text of messages, up to where the assistant begins."""
    return "".join(f"<|im_start|>{r}\n{t}<|im_end|>\n" for r, t in turns) + "<|im_start|>assistant\n"


class Packer:
    """Fills rows of fixed length with whole documents; a small pool lets short ones fill the gaps."""

    def __init__(self, tok, seed, length, long=False):
        self.tok, self.rng, self.length, self.long, self.pool, self.drills = tok, random.Random(seed), length, long, [], 0.0

    def encoded(self):
        ids, weights = [], []
        for text, weight in document(self.rng, self.long, self.drills):
            part = self.tok.encode(text)
            ids += part
            weights += [weight] * len(part)
        return ids, weights

    def row(self):
        """(ids, weights) of length + 1; a document that is too long is cut at the end of an empty row."""
        n, ids, weights = self.length + 1, [], []
        pad = self.tok.special["<|endoftext|>"]
        while len(ids) < n:
            while len(self.pool) < 32:
                self.pool.append(self.encoded())
            room = n - len(ids)
            fit = [i for i, d in enumerate(self.pool) if len(d[0]) <= room]
            if ids and not fit:
                break
            d = self.pool.pop(fit[0] if ids else 0)
            ids += d[0][:room]
            weights += d[1][:room]
        return ids + [pad] * (n - len(ids)), weights + [0.0] * (n - len(weights))

    def batch(self, rows):
        got = [self.row() for _ in range(rows)]
        return [g[0] for g in got], [g[1] for g in got]
