"""Simple children's stories from a grammar: a hero, a wish, a trouble, a helper, an ending."""
from words import FIRST, GIRLS, article, made_up_name

ANIMALS = "dog cat rabbit fox bear mouse duck owl frog pig horse sheep turtle bird lion goat squirrel hen".split()
PLACES = ["park", "forest", "garden", "river", "farm", "beach", "hill", "village", "lake", "old house", "meadow", "market"]
THINGS = ["red ball", "blue kite", "toy car", "little boat", "shiny stone", "yellow hat", "big drum", "warm scarf",
          "green book", "gold key", "wooden horse", "round apple", "paper star", "soft blanket", "silver bell"]
TRAITS = ["little", "brave", "kind", "shy", "happy", "clever", "quiet", "curious", "small", "young"]
WEATHER = ["The sun was warm.", "It was a sunny day.", "The wind was strong.", "It was a cold morning.",
           "The sky was blue.", "A soft rain fell.", "Snow lay on the ground.", "It was a quiet evening."]
OPEN = ["Once upon a time, there was {a} named {n}.", "Once upon a time, there was {a}. {His} name was {n}.",
        "There once was {a} named {n}.", "{n} was {a}.", "Once there was {a} called {n}."]
LOVE = ["{n} loved to play in the {p}.", "{He} lived near the {p}.", "Every day {he} went to the {p}.",
        "{n} liked the {p} very much.", "{He} lived in a small house by the {p}."]
DAY = ["One day, {n} found a {t}.", "One day, {he} saw a {t} near the {p}.", "One morning, {n} took {his} {t} to the {p}.",
       "One day, {his} mother gave {him} a {t}."]
FEEL = ["{He} was very happy.", "\"What a nice {t}!\" said {n}.", "{n} smiled and held the {t}.",
        "{He} wanted to show it to a friend.", "{n} played with it all day."]
TROUBLE = [
    ("But the {t} fell into the water.", "The {f} jumped in and brought it back."),
    ("But the {t} rolled down the hill.", "The {f} ran fast and caught it."),
    ("But then the {t} broke.", "The {f} said, \"We can fix it together.\" And they did."),
    ("But the {t} got stuck in a tree.", "The {f} climbed up and got it down."),
    ("But {n} lost the {t} in the grass.", "The {f} looked and looked, and found it under a leaf."),
    ("But a strong wind took the {t} away.", "The {f} followed the wind and found it."),
    ("But {n} could not find the way home.", "The {f} knew the way and went with {him}."),
    ("But it got dark, and {n} was afraid.", "The {f} brought a lamp and stayed with {him}."),
]
SAD = ["{n} was sad and began to cry.", "{n} did not know what to do.", "\"Oh no!\" said {n}.", "{He} felt very sad."]
HELP = ["Then {af} named {m} came by.", "A friend, {af} named {m}, heard {him}.", "Just then, {af} came along. It was {m}.",
        "{m} the {f} saw it and wanted to help."]
ASKED = ["\"Can you help me?\" asked {n}.", "\"Do not cry,\" said {m}.", "\"I will help you,\" said {m}.",
         "\"What is wrong?\" asked {m}."]
THANK = ["\"Thank you!\" said {n}.", "{n} gave {m} a big hug.", "{n} was happy again and thanked {m}.",
         "\"You are a good friend,\" said {n}."]
END = ["From that day on, {n} and {m} were best friends.", "They played together until the sun went down.",
       "{n} learned that it is good to have friends.", "Then they went home and ate some cake.",
       "And they lived happily ever after.", "{n} learned to ask for help. The end.",
       "That night, {n} slept well and dreamed of the {p}."]


def fill(template, d):
    return template.format(**d)


def story(rng, hero=None, place=None, thing=None, name=None, length=None):
    """One story; what is given is kept, the rest is drawn. length is 'short', 'long' or None."""
    if hero is None:
        hero = rng.choice(ANIMALS + ["girl", "boy"] * 6)
    girl = hero == "girl" or (hero != "boy" and (name in GIRLS if name else rng.random() < 0.5))
    fitting = [x for x in FIRST if (x in GIRLS) == girl]
    name = name or (made_up_name(rng) if rng.random() < 0.15 else rng.choice(fitting))
    mate = rng.choice([x for x in FIRST if x != name])
    helper = rng.choice([a for a in ANIMALS if a != hero])
    trait = rng.choice(TRAITS)
    d = {"n": name, "m": mate, "f": helper, "af": article(helper), "a": article(trait + " " + hero),
         "p": place or rng.choice(PLACES), "t": thing or rng.choice(THINGS)}
    d.update(zip(("he", "him", "his"), ("she", "her", "her") if girl else ("he", "him", "his")))
    d.update({"He": d["he"].capitalize(), "His": d["his"].capitalize()})
    trouble, rescue = rng.choice(TROUBLE)
    length = length or rng.choice(["short", "long", "long"])
    parts = [rng.choice(OPEN), rng.choice(LOVE), rng.choice(DAY)]
    if length == "long":
        if rng.random() < 0.5:
            parts.insert(2, rng.choice(WEATHER))
        parts += [rng.choice(FEEL), trouble, rng.choice(SAD), rng.choice(HELP)]
        if rng.random() < 0.6:
            parts.append(rng.choice(ASKED))
        parts += [rescue, rng.choice(THANK), rng.choice(END)]
    else:
        # A short story has no trouble; the helper is met in passing.
        parts += [rng.choice(FEEL), "Then {he} met {af} named {m}.", rng.choice(END[:5])]
    return " ".join(fill(p, d) for p in parts)


def request(rng):
    """(question, story, key): a chat request for a story, with or without wishes."""
    kind = rng.random()
    if kind < 0.3:
        q = rng.choice(["Tell me a story.", "Tell me a short story.", "Write a story.", "I want to hear a story.",
                        "Please tell me a story.", "Can you tell me a story?", "Make up a story."])
        return q, story(rng, length="short" if "short" in q else None), "story:" + q
    hero = rng.choice(ANIMALS + ["girl", "boy"])
    frame = rng.choice(["Tell me a story about {}.", "Write a story about {}.", "Tell me about {}.",
                        "I want a story about {}.", "Can you tell me a story about {}?", "Write a short story about {}."])
    length = "short" if "short" in frame else None
    if kind < 0.6:
        return frame.format(article(hero)), story(rng, hero=hero, length=length), f"story:{frame}:{hero}"
    if kind < 0.8:
        name = rng.choice(FIRST)
        return (frame.format(f"{article(hero)} named {name}"), story(rng, hero=hero, name=name, length=length),
                f"story:{frame}:{hero}:{name}")
    place, thing = rng.choice(PLACES), rng.choice(THINGS)
    return (frame.format(f"{article(hero)} and a {thing}"), story(rng, hero=hero, thing=thing, length=length),
            f"story:{hero}:{thing}:{place}")
