"""The question-and-answer tasks. Each function draws one Item from a random generator.

An Item's key names the combination that was drawn; corpus.py keeps a fixed share of the keys for evaluation
and never trains on them.
"""
import dataclasses

import facts
import stories
import words as w


@dataclasses.dataclass
class Item:
    prompt: str
    answer: str
    key: str
    loose: bool = False   # the answer is one of many, not to be compared


def number(rng):
    """A small number, the smallest most often."""
    return rng.randint(0, rng.choice([9, 9, 12, 20]))


def arithmetic(rng):
    op = rng.choice("+++---**")
    if op == "*":
        a, b = rng.randint(0, 10), rng.randint(0, 10)
        r, verb = a * b, ["times", "multiplied by"]
    else:
        a, b = number(rng), number(rng)
        if op == "-" and a < b:
            a, b = b, a
        r, verb = (a + b, ["plus", "and"]) if op == "+" else (a - b, ["minus"])
    q = rng.choice(["What is {a} {o} {b}?", "{a} {o} {b}", "{a} {o} {b} =", "Calculate {a} {o} {b}.", "How much is {a} {o} {b}?",
                    "{a}{o}{b}", "Compute {a} {o} {b}", "What is {a} {v} {b}?", "How much is {a} {v} {b}?"])
    v = verb[0] if "What" in q else rng.choice(verb)
    q = q.format(a=a, b=b, o=op, v=v)
    return Item(q, f"{a} {op} {b} = {r}", f"{a}{op}{b}")


def word_problem(rng):
    n, t, m = w.person(rng), rng.choice(w.FRUIT), w.person(rng)
    a, b = rng.randint(1, 12), rng.randint(1, 8)
    if rng.random() < 0.5:
        q = rng.choice([f"{n} has {a} {t} and gets {b} more.", f"{n} has {a} {t}. {m} gives {n} {b} more.",
                        f"{n} has {a} {t} and buys {b} more."])
        s, r = f"{a} + {b} = {a + b}", a + b
    else:
        a = a + b
        q = rng.choice([f"{n} has {a} {t} and loses {b}.", f"{n} has {a} {t}. {n} gives {b} to {m}.",
                        f"{n} has {a} {t} and sells {b}."])
        s, r = f"{a} - {b} = {a - b}", a - b
    q += rng.choice([f" How many {t} does {n} have now?", f" How many {t} are left?" if "-" in s else " How many in all?"])
    return Item(q, f"{s}. {n} has {r} {t}.", f"wp:{s}:{t}")


def compare(rng):
    a, b = (rng.randint(0, 99) if rng.random() < 0.5 else number(rng) for _ in range(2))
    if a == b:
        b += 1
    k = rng.random()
    if k < 0.35:
        return Item(rng.choice([f"Which is larger, {a} or {b}?", f"Which number is bigger: {a} or {b}?"]), str(max(a, b)), f"cmp:{a}:{b}")
    if k < 0.7:
        return Item(rng.choice([f"Which is smaller, {a} or {b}?", f"Which number is less: {a} or {b}?"]), str(min(a, b)), f"cmp:{a}:{b}")
    yes = a > b
    return Item(f"Is {a} greater than {b}?", f"Yes, {a} is greater than {b}." if yes else f"No, {a} is less than {b}.", f"cmp:{a}:{b}")


def classify(rng):
    c = rng.choice(list(w.CLASSES))
    x = rng.choice(w.CLASSES[c])
    k = rng.randint(0, 4)
    others = rng.sample([o for o in w.CLASSES if o != c], 2)
    menu = rng.sample([c] + others, 3)
    if k == 0:
        q = rng.choice(["What kind of thing is {x}?", "What is {x}?", "To which class does {x} belong?", "{x}: what is it?"])
        return Item(q.format(x=w.article(x)), f"{w.article(x)} is {w.article(c)}.".capitalize(), f"cl0:{q}:{x}")
    if k == 1:
        q = rng.choice(["Is {x} {o}?", "Is {x} {o}? Choose one."]).format(
            x=w.article(x), o=w.join([w.article(m) for m in menu], "or"))
        return Item(q, f"{w.article(x)} is {w.article(c)}.".capitalize(), f"cl1:{x}:{menu}")
    if k == 2:
        q = rng.choice(["Classify the word as {m}: {x}", "Choose a class ({m}) for: {x}", "Label as {m}: {x}"])
        return Item(q.format(m=w.join(menu, "or"), x=x), c, f"cl2:{x}:{menu}")
    if k == 3:
        o = rng.choice([c, others[0]])
        q = f"Is {w.article(x)} {w.article(o)}?"
        return Item(q, ("Yes, " if o == c else "No, ") + f"{w.article(x)} is {w.article(c)}.", f"cl3:{x}:{o}")
    q = rng.choice(["Classify: {x}", "What class is: {x}", "Category of {x}?"])
    return Item(q.format(x=x), c, f"cl4:{q}:{x}")


def grouping(rng):
    a, b = rng.sample([c for c in w.CLASSES if c != "color"], 2)
    xs = [(x, a) for x in rng.sample(w.CLASSES[a], rng.randint(1, 3))] + [(x, b) for x in rng.sample(w.CLASSES[b], rng.randint(1, 2))]
    rng.shuffle(xs)
    names = ", ".join(x for x, _ in xs)
    q = rng.choice(["Sort into {a} and {b}: {n}", "Sort these into {a} and {b}: {n}", "Group as {a} or {b}: {n}"])
    lines = [f"{w.PLURAL[c]}: " + ", ".join(x for x, k in xs if k == c) for c in (a, b)]
    return Item(q.format(a=w.PLURAL[a], b=w.PLURAL[b], n=names), "\n".join(lines), f"grp:{a}:{b}:{names}")


GOOD = "great wonderful excellent lovely fantastic perfect amazing good tasty friendly beautiful brilliant nice superb".split()
BAD = "terrible awful bad horrible poor disgusting boring ugly rude broken useless disappointing slow dirty".split()
SUBJECT = ["food", "film", "book", "hotel", "service", "staff", "room", "phone", "song", "trip", "game", "coffee", "show", "weather"]
POSITIVE = ["I love this {s}.", "I really enjoyed the {s}.", "The {s} made me happy.", "Best {s} ever!", "I would buy this {s} again.",
            "I can recommend the {s}."]
NEGATIVE = ["I hate this {s}.", "I did not like the {s}.", "The {s} made me angry.", "Worst {s} ever!", "I want my money back for this {s}.",
            "Never again this {s}."]


def sentiment(rng):
    pos = rng.random() < 0.5
    s, v = rng.choice(SUBJECT), rng.choice(GOOD if pos else BAD)
    if rng.random() < 0.65:
        v2 = rng.choice(GOOD if pos else BAD)
        t = rng.choice([f"The {s} was {v}.", f"What a {v} {s}!", f"The {s} is really {v}.", f"The {s} was {v} and {v2}.",
                        f"I think the {s} is {v}.", f"A very {v} {s}."])
    else:
        t = rng.choice(POSITIVE if pos else NEGATIVE).format(s=s)
    q = rng.choice(["Is this positive or negative? {t}", "Sentiment: {t}", "Classify the sentiment: {t}",
                    "Label as positive or negative: {t}", "{t} Is that positive or negative?"])
    return Item(q.format(t=t), "positive" if pos else "negative", "sent:" + t)


TICKETS = {
    "billing": ["I was charged twice", "my invoice is wrong", "I want a refund", "the price on my bill is too high", "my card was declined",
                "I need a receipt for my payment", "please cancel my subscription", "I paid but got no invoice"],
    "technical": ["the app crashes when I open it", "the page does not load", "I get an error message", "the screen stays black",
                  "the upload fails each time", "the button does not work", "the program is very slow", "the sync stopped working"],
    "account": ["I forgot my password", "I cannot log in", "I want to change my email", "please delete my account", "my account is locked",
                "how do I change my user name", "I need to update my address", "the login code never came"],
    "shipping": ["my package has not arrived", "where is my order", "the parcel is damaged", "I got the wrong item", "the delivery is late",
                 "can you ship to another address", "the tracking number does not work", "half of my order is missing"],
}
OPENERS = ["", "Hello, ", "Hi, ", "Good morning, ", "Dear team, ", "Help! ", "Please help: ", "Since Monday, ", "Again, ", "Sorry, but "]
CLOSERS = [".", "!", ". Thank you.", ". Please help.", ". What can I do?", ". It is urgent."]


def routing(rng):
    c = rng.choice(list(TICKETS))
    t = rng.choice(OPENERS) + rng.choice(TICKETS[c]) + rng.choice(CLOSERS)
    t = t[0].upper() + t[1:]
    q = rng.choice(["Route this ticket: {t}", "Which team should get this? {t}", "Ticket: {t}", "Choose billing, technical, account or shipping: {t}"])
    return Item(q.format(t=t), c, "tick:" + t)


def quote(fields):
    """A JSON object on one line, as json.dumps writes it."""
    return "{" + ", ".join(f'"{k}": ' + (str(v) if isinstance(v, int) else f'"{v}"') for k, v in fields) + "}"


def extract(rng):
    n = w.person(rng) + (" " + rng.choice(w.LAST) if rng.random() < 0.3 else "")
    age, city, job = rng.randint(5, 90), rng.choice(w.CITIES), rng.choice(w.JOBS)
    order, qty, thing = rng.randint(100, 9999), rng.randint(1, 20), rng.choice(w.FRUIT)
    date = f"{rng.choice(w.MONTHS)} {rng.randint(1, 28)}"
    kind = rng.randint(0, 6)
    if kind == 0:
        t = rng.choice([f"{n} is {age} years old and lives in {city}.", f"{n}, {age}, lives in {city}.", f"My name is {n}. I am {age} and I live in {city}.",
                        f"In {city} lives {n}, who is {age} years old."])
        f = [("name", n), ("age", age), ("city", city)]
    elif kind == 1:
        t = rng.choice([f"{n} is {age} years old.", f"I am {n} and I am {age}.", f"{n} turned {age} today."])
        f = [("name", n), ("age", age)]
    elif kind == 2:
        t = rng.choice([f"{n} lives in {city}.", f"{n} comes from {city}.", f"{n} moved to {city}.", f"I am {n} from {city}."])
        f = [("name", n), ("city", city)]
    elif kind == 3:
        t = rng.choice([f"{n} works as {w.article(job)} in {city}.", f"{n} is {w.article(job)} from {city}."])
        f = [("name", n), ("job", job), ("city", city)]
    elif kind == 4:
        t = rng.choice([f"Order {order}: {qty} {thing} for {n}.", f"{n} ordered {qty} {thing}. The order number is {order}.", f"Please send {qty} {thing} to {n}, order {order}."])
        f = [("order", order), ("name", n), ("item", thing), ("quantity", qty)]
    elif kind == 5:
        t = rng.choice([f"{n} has a meeting on {date}.", f"The meeting with {n} is on {date}.", f"Meet {n} on {date}."])
        f = [("name", n), ("date", date)]
    else:
        t = rng.choice([f"{n} will arrive in {city} on {date}.", f"On {date} {n} flies to {city}.", f"{n} travels to {city} on {date}."])
        f = [("name", n), ("city", city), ("date", date)]
    keys = [k for k, _ in f]
    if rng.random() < 0.25:
        k, v = rng.choice(f)
        return Item(rng.choice([f"What is the {k}? {t}", f"Extract the {k}: {t}", f"{t} What is the {k}?"]), str(v), "ex:" + t)
    if rng.random() < 0.5 and len(f) > 2:
        f = rng.sample(f, len(f)) if rng.random() < 0.5 else f[:2]
        keys = [k for k, _ in f]
    q = rng.choice(["Extract {k} as JSON: {t}", "Extract the {k} as JSON: {t}", "{t} Give me {k} as JSON.", "JSON with {k}: {t}",
                    "Turn into JSON with {k}: {t}"])
    return Item(q.format(k=w.join(keys), t=t), quote(f), "ex:" + t)


ALL_WORDS = [x for ws in w.CLASSES.values() for x in ws]


def lists(rng):
    k = rng.randint(0, 7)
    ws = rng.sample(ALL_WORDS, rng.randint(2, 5))
    t = ", ".join(ws)
    if k == 0:
        return Item(rng.choice([f"Reverse the list: {t}", f"Reverse the order: {t}"]), ", ".join(ws[::-1]), "li:" + t)
    if k == 1:
        return Item(rng.choice([f"How many words: {t}", f"How many items are in this list? {t}", f"Count the items: {t}"]), str(len(ws)), "li:" + t)
    if k == 2:
        return Item(f"What is the first word? {t}", ws[0], "li:" + t)
    if k == 3:
        return Item(f"What is the last word? {t}", ws[-1], "li:" + t)
    if k == 4:
        ns = rng.sample(range(100) if rng.random() < 0.5 else range(20), rng.randint(2, 5))
        t = ", ".join(map(str, ns))
        down = rng.random() < 0.25
        q = f"Sort from large to small: {t}" if down else rng.choice([f"Sort the numbers: {t}", f"Sort: {t}", f"Sort from small to large: {t}"])
        return Item(q, ", ".join(map(str, sorted(ns, reverse=down))), "li:" + t)
    if k == 5:
        ws = ws[:3]
        t = ", ".join(ws)
        return Item(rng.choice([f"Sort the words: {t}", f"Sort alphabetically: {t}", f"Put in alphabetical order: {t}"]), ", ".join(sorted(ws)), "li:" + t)
    if k == 6:
        a = rng.randint(0, 30)
        n = rng.randint(3, 8)
        return Item(rng.choice([f"Count from {a} to {a + n}.", f"Count from {a} up to {a + n}"]), ", ".join(map(str, range(a, a + n + 1))), f"cnt:{a}:{n}")
    c = rng.choice(list(w.CLASSES))
    n = rng.randint(2, 4)
    q = rng.choice([f"Name {w.NUMBER_WORDS[n]} {w.PLURAL[c]}.", f"List {n} {w.PLURAL[c]}."])
    return Item(q, ", ".join(rng.sample(w.CLASSES[c][:12], min(n, len(w.CLASSES[c])))), f"name:{q}", True)


def letters(rng):
    x = rng.choice(ALL_WORDS)
    k = rng.randint(0, 4)
    if k == 0:
        return Item(rng.choice([f"Spell {x}.", f"Spell the word {x}.", f"How do you spell {x}?"]), "-".join(x), f"lt0:{x}:{rng.randint(0, 3)}")
    if k == 1:
        return Item(rng.choice([f"How many letters are in {x}?", f"How many letters does the word {x} have?"]), f"{'-'.join(x)}: {len(x)}", f"lt1:{x}")
    if k == 2:
        return Item(f"What is the first letter of {x}?", x[0], f"lt2:{x}")
    if k == 3:
        return Item(f"What is the last letter of {x}?", x[-1], f"lt3:{x}")
    x = rng.choice([y for y in ALL_WORDS if len(y) <= 5])
    return Item(rng.choice([f"Reverse the word {x}.", f"Write {x} backwards."]), f"{'-'.join(x)} -> {x[::-1]}", f"lt4:{x}")


def capitals(rng):
    c = rng.choice(list(w.CAPITALS))
    k = rng.randint(0, 5)
    if k < 4:
        q = ["What is the capital of {}?", "Capital of {}?", "Name the capital of {}.", "Which city is the capital of {}?"][k]
        return Item(q.format(c), f"The capital of {c} is {w.CAPITALS[c]}.", f"cap{k}:{c}")
    q = ["{} is the capital of which country?", "Of which country is {} the capital?"][k - 4]
    return Item(q.format(w.CAPITALS[c]), f"{w.CAPITALS[c]} is the capital of {c}.", f"cap{k}:{c}")


def small_facts(rng):
    k = rng.randint(0, 8)
    if k == 0:
        a, b = rng.choice(list(w.OPPOSITES.items()))
        if rng.random() < 0.5:
            a, b = b, a
        a, b = (a, b) if a != "black" and a != "white" else ("black", "white")
        q = rng.choice(["What is the opposite of {}?", "Opposite of {}?", "Name the opposite of {}."])
        return Item(q.format(a), f"The opposite of {a} is {dict(list(w.OPPOSITES.items()) + [(y, x) for x, y in w.OPPOSITES.items()])[a]}.", f"opp:{q}:{a}")
    if k == 1:
        x, c = rng.choice(list(w.COLOR_OF.items()))
        q = rng.choice(["What color is the {}?", "Which color has the {}?", "What is the color of the {}?"])
        return Item(q.format(x), f"The {x} is {c}.", f"col:{q}:{x}")
    if k == 2:
        x, n = rng.choice(list(w.LEGS.items()))
        q = rng.choice(["How many legs does {} have?", "How many legs has {}?"])
        return Item(q.format(w.article(x)), f"{w.article(x)} has {n or 'no'} legs.".capitalize(), f"leg:{q}:{x}")
    if k == 3:
        x, s = rng.choice(list(w.SOUNDS.items()))
        q = rng.choice(["What sound does {} make?", "What does {} do?", "Which sound comes from {}?"])
        return Item(q.format(w.article(x)), f"{w.article(x)} {s}.".capitalize(), f"snd:{q}:{x}")
    if k in (4, 5):
        seq, what = (w.DAYS, "day") if k == 4 else (w.MONTHS, "month")
        i, d = rng.randrange(len(seq)), rng.choice([1, -1])
        rel = "after" if d == 1 else "before"
        q = rng.choice([f"Which {what} comes {rel} {{}}?", f"What {what} is {rel} {{}}?", f"Which {what} is just {rel} {{}}?"])
        return Item(q.format(seq[i]), f"{seq[(i + d) % len(seq)]} comes {rel} {seq[i]}.", f"{q}:{seq[i]}")
    if k == 6:
        n = rng.randrange(21)
        if rng.random() < 0.5:
            return Item(f"Write {n} as a word.", w.NUMBER_WORDS[n], f"nw:{n}")
        return Item(f"Write {w.NUMBER_WORDS[n]} as a number.", str(n), f"wn:{n}")
    if k == 7:
        return Item(*rng.choice([("How many days are in a week?", "A week has 7 days."), ("How many months are in a year?", "A year has 12 months."),
                                 ("How many hours are in a day?", "A day has 24 hours."), ("How many minutes are in an hour?", "An hour has 60 minutes.")]), "fix")
    name, d = rng.choice(list(w.LANGUAGES.items()))
    x = rng.choice(list(d))
    q = rng.choice(["How do you say {x} in {l}?", "Translate {x} to {l}.", "What is {x} in {l}?", "{x} in {l}?"])
    return Item(q.format(x=x, l=name), d[x], f"tr:{q}:{x}:{name}")


def copy(rng):
    ws = rng.choice([lambda: w.made_up_name(rng), lambda: " ".join(rng.sample(ALL_WORDS, rng.randint(2, 8))),
                     lambda: f"{w.person(rng)} likes {rng.choice(ALL_WORDS)}", lambda: str(rng.randint(0, 99999)),
                     lambda: " ".join(w.made_up_name(rng).lower() for _ in range(rng.randint(2, 6)))])()
    return Item(rng.choice(["Repeat: {}", "Repeat after me: {}", "Say {}", "Copy this text: {}", "Write: {}"]).format(ws), ws, "copy:" + ws)


UNKNOWN = ["What is the weather in {c} today?", "What is the phone number of {n}?", "Who won the game in {y}?", "What will happen in {y}?",
           "How many people live in {c}?", "Who is {m}?", "Where is {m}?", "What did {n} eat yesterday?", "When was {m} born?",
           "What is the price of gold today?", "What time is it in {c}?", "What is the news in {c}?", "Who is the president of {k}?",
           "How tall is {n}?", "What is the meaning of {m}?", "What happened in {y}?", "What is a {m}?", "What is {m}?", "How old is {n}?", "Which song did {m} write?"]


TOPICS = ["the sea", "love", "history", "politics", "physics", "quantum physics", "music", "the moon", "spring", "the stars", "football",
          "computers", "war", "money", "philosophy", "cooking", "the ocean", "robots", "math", "chess", "dinosaurs", "space", "art",
          "biology", "the economy", "trees", "the brain", "climate", "religion", "poetry"]
CANNOT = ["Write a poem about {t}.", "Write a haiku about {t}.", "Write an essay about {t}.", "Explain {t}.", "Explain {t} to me.",
          "Tell me about {t}.", "What is {t}?", "Write a song about {t}.", "Teach me {t}.", "Can you help me with {t}?",
          "Give me a recipe for {f}.", "How do I make {f}?", "How do I cook {f}?", "Recommend a book about {t}.", "Write a program in Python.",
          "Write code that sorts a list.", "Write a letter to {n}.", "Plan a trip to {c}.", "How do I get to {c}?", "Summarize the history of {k}.",
          "Draw a picture of {t}.", "What do you think about {t}?", "Which is the best book about {t}?", "Why is {t} important?",
          "Who invented {t}?", "Write an email to {n}.", "Solve the equation x + {y} = 0.", "What should I eat today?", "What is the meaning of life?",
          "Why do people like {t}?", "How does {t} work?", "Give me some facts about {t}.", "Tell me about {k}.", "Tell me about {c}."]


def unknown(rng):
    """Half the time a question of fact that nobody told the model, else a task that is too hard for it."""
    fill = dict(c=rng.choice(w.CITIES), n=rng.choice(w.FIRST), m=w.made_up_name(rng), y=rng.randint(1800, 2090), k=rng.choice(list(w.CAPITALS)),
                t=rng.choice(TOPICS), f=rng.choice(w.CLASSES["food"]))
    if rng.random() < 0.5:
        q = rng.choice(UNKNOWN).format(**fill)
        return Item(q, "I do not know that. I am a very small model.", "unk:" + q)
    q = rng.choice(CANNOT).format(**fill)
    return Item(q, "That is too hard for me. I am a very small model.", "hard:" + q)


def athanor(rng):
    if rng.random() < 0.5:
        topic, phrases, answer = rng.choice(facts.HOW)
        f, p = rng.choice(facts.HOW_FRAMES), rng.choice(phrases)
        return Item(f.format(p), answer, f"how:{f}:{p}")
    topic, questions, answers = rng.choice(facts.ASK)
    p = rng.choice(["", "", "", "Please tell me: ", "A question: ", "I would like to know: ", "Quick question: ", "One more thing: "])
    q = rng.choice(questions)
    return Item(p + q, answers[0], f"ask:{p}:{q}")


def small_talk(rng):
    qs, a = rng.choice(facts.SMALL_TALK)
    q = rng.choice(qs)
    return Item(q, a, "talk:" + q)


def story(rng):
    q, s, key = stories.request(rng)
    return Item(q, s, key, True)


# name -> (function, share of the chat text)
TASKS = {
    "athanor": (athanor, 22), "arithmetic": (arithmetic, 18), "extract": (extract, 18), "classify": (classify, 14), "copy": (copy, 6),
    "small talk": (small_talk, 5), "capitals": (capitals, 4), "unknown": (unknown, 4), "small facts": (small_facts, 4), "story": (story, 3),
    "sentiment": (sentiment, 3), "lists": (lists, 3), "word problem": (word_problem, 3), "grouping": (grouping, 3), "compare": (compare, 2),
    "routing": (routing, 2), "letters": (letters, 1),
}
