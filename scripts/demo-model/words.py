"""Word lists and made-up names that the tasks draw from."""

CLASSES = {
    "animal": "dog cat horse cow sheep pig goat lion tiger bear wolf fox rabbit mouse duck goose hen owl eagle crow "
              "frog snake turtle shark whale dolphin monkey zebra camel deer".split(),
    "plant": "rose tulip daisy oak pine fern moss cactus lily ivy willow maple bamboo clover orchid palm".split(),
    "tool": "hammer saw drill wrench shovel rake axe chisel pliers ladder broom screwdriver file spade".split(),
    "food": "bread cheese soup rice cake butter pasta honey egg apple banana pear grape lemon carrot onion potato "
            "tomato pizza salad".split(),
    "vehicle": "car bus truck train bicycle boat ship plane tractor van tram scooter ferry rocket".split(),
    "clothing": "shirt coat hat sock shoe scarf glove dress skirt jacket sweater belt boot".split(),
    "furniture": "chair table bed sofa desk shelf stool bench wardrobe cupboard".split(),
    "instrument": "piano guitar violin flute drum trumpet harp cello clarinet".split(),
    "color": "red blue green yellow purple orange pink brown black white gray".split(),
    "metal": "iron gold silver copper tin lead zinc nickel".split(),
}
PLURAL = {"animal": "animals", "plant": "plants", "tool": "tools", "food": "foods", "vehicle": "vehicles",
          "clothing": "clothes", "furniture": "furniture", "instrument": "instruments", "color": "colors",
          "metal": "metals"}
MASS = set("moss ivy bamboo clover bread cheese soup rice butter pasta honey salad clothing furniture pizza pliers".split()
           ) | set(CLASSES["metal"]) | set(CLASSES["color"])
CLASS_OF = {w: c for c, ws in CLASSES.items() for w in ws}

CAPITALS = dict(p.split(":") for p in (
    "France:Paris Germany:Berlin Italy:Rome Spain:Madrid Portugal:Lisbon Austria:Vienna Poland:Warsaw Greece:Athens "
    "Norway:Oslo Sweden:Stockholm Finland:Helsinki Denmark:Copenhagen Ireland:Dublin Hungary:Budapest Belgium:Brussels "
    "Switzerland:Bern Netherlands:Amsterdam Russia:Moscow Turkey:Ankara Egypt:Cairo Kenya:Nairobi Ghana:Accra "
    "Morocco:Rabat Japan:Tokyo China:Beijing India:Delhi Thailand:Bangkok Vietnam:Hanoi Iran:Tehran Iraq:Baghdad "
    "Canada:Ottawa Cuba:Havana Peru:Lima Chile:Santiago Brazil:Brasilia Australia:Canberra Ukraine:Kyiv Croatia:Zagreb "
    "Serbia:Belgrade Romania:Bucharest Bulgaria:Sofia Iceland:Reykjavik Estonia:Tallinn Latvia:Riga").split())

OPPOSITES = dict(p.split(":") for p in (
    "hot:cold big:small fast:slow up:down left:right open:closed day:night happy:sad old:young full:empty hard:soft "
    "light:dark high:low long:short near:far rich:poor wet:dry strong:weak clean:dirty early:late loud:quiet "
    "true:false in:out first:last black:white good:bad").split())

COLOR_OF = dict(p.split(":") for p in (
    "sky:blue grass:green snow:white blood:red coal:black banana:yellow carrot:orange lemon:yellow leaf:green "
    "milk:white night:black sea:blue cherry:red frog:green crow:black chocolate:brown").split())

LEGS = {"dog": 4, "cat": 4, "horse": 4, "cow": 4, "duck": 2, "hen": 2, "owl": 2, "spider": 8, "ant": 6, "bee": 6,
        "snake": 0, "fish": 0, "sheep": 4, "bird": 2, "fly": 6, "fox": 4}

SOUNDS = {"dog": "barks", "cat": "meows", "cow": "moos", "duck": "quacks", "sheep": "bleats", "lion": "roars",
          "horse": "neighs", "frog": "croaks", "bee": "buzzes", "owl": "hoots", "wolf": "howls", "snake": "hisses"}

FRENCH = dict(p.split(":") for p in (
    "cat:chat dog:chien house:maison water:eau bread:pain milk:lait sun:soleil moon:lune book:livre red:rouge "
    "green:vert white:blanc summer:été school:école tree:arbre fish:poisson bird:oiseau night:nuit day:jour "
    "friend:ami").split())
SPANISH = dict(p.split(":") for p in (
    "cat:gato dog:perro house:casa water:agua bread:pan milk:leche sun:sol moon:luna book:libro red:rojo "
    "green:verde white:blanco summer:verano school:escuela tree:árbol fish:pez bird:pájaro night:noche day:día "
    "friend:amigo").split())
GERMAN = dict(p.split(":") for p in (
    "cat:Katze dog:Hund house:Haus water:Wasser bread:Brot milk:Milch sun:Sonne moon:Mond book:Buch red:rot "
    "green:grün white:weiß summer:Sommer school:Schule tree:Baum fish:Fisch bird:Vogel night:Nacht day:Tag "
    "friend:Freund").split())
LANGUAGES = {"French": FRENCH, "Spanish": SPANISH, "German": GERMAN}

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
NUMBER_WORDS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
                "seventeen eighteen nineteen twenty").split()

FIRST = ("Anna Ben Clara David Emma Felix Grace Henry Ida Jack Kate Leo Mia Noah Olga Paul Rosa Sam Tina Tom Lily Max "
         "Nora Oscar Ruth Simon Vera Will Zoe Adam Lucy Peter Maria Ali Omar Sara Yuki Ravi Lena Hugo").split()
GIRLS = set("Anna Clara Emma Grace Ida Kate Mia Olga Rosa Tina Lily Nora Ruth Vera Zoe Lucy Maria Sara Yuki Lena".split())
LAST = ("Smith Brown Miller Stone Green Hill Wood Baker Fisher Cook Young King Wright Carter Lee Novak Weber Rossi "
        "Silva Berg Khan Ito Singh Moreau").split()
CITIES = list(CAPITALS.values()) + ["London", "Hamburg", "Porto", "Lyon", "Milan", "Boston", "Osaka", "Krakow", "Leeds",
                                    "Geneva", "Turin", "Denver"]
JOBS = "teacher doctor nurse baker farmer pilot painter driver lawyer cook singer engineer".split()
FRUIT = "apples pears plums oranges lemons cherries nuts coins books pens stamps cards eggs stones shells".split()

ONSET = "b d f g h k l m n p r s t v z br dr gr kl tr st sh".split()
VOWEL = "a e i o u ai ea".split()
CODA = ["", "", "n", "r", "l", "s", "m", "k"]


def made_up_name(rng):
    """A pronounceable name of two or three syllables that no list holds."""
    s = "".join(rng.choice(ONSET) + rng.choice(VOWEL) for _ in range(rng.choice([1, 2, 2])))
    return (s + rng.choice(CODA)).capitalize()


def person(rng):
    """A first name, three times in ten a made-up one."""
    return made_up_name(rng) if rng.random() < 0.3 else rng.choice(FIRST)


def article(noun):
    """'a dog', 'an apple', 'honey'."""
    if noun in MASS:
        return noun
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def join(items, last="and"):
    """'a, b and c'."""
    items = list(items)
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + f" {last} " + items[-1]
