"""JSON lines as `run` prints them, for the programs that make tables of them."""
import json

GROUPS = ("shm", "tcp", "veth")


def group(t):
    for g in GROUPS:
        if t == g or t.startswith(g + "-"):
            return g
    return t


def size(b):
    if b == 0:
        return ""
    for s, u in ((1 << 20, "M"), (1 << 10, "K")):
        if b >= s and b % s == 0:
            return "%d%s" % (b // s, u)
    return str(b)


def reduced(text, stat):
    """The figures of lines: by (way, operation, bytes) and peer its time and line; what did not work; the machine."""
    key = "lat_min_us" if stat == "min" else "lat_us"
    runs, best, errs, mach = {}, {}, [], []
    for l in text.splitlines():
        l = l.strip()
        if not l.startswith("{"):
            continue
        d = json.loads(l)
        if d.get("op") == "machine":
            mach.append(d)
        elif "error" in d:
            errs.append(d)
        elif d.get("lat_us"):
            g = group(d["transport"])
            var = d["transport"][len(g):]
            k = (g, d["op"], d["bytes"])
            t = d.get(key, d["lat_us"])
            runs.setdefault(k, {}).setdefault(d["peer"] + var, []).append((t, d))
    for k, of_peers in runs.items():
        for p, all_runs in of_peers.items():
            # A turn that the processors were apart in counts only where a peer has no other.
            all_runs = [run for run in all_runs if not run[1].get("apart")] or all_runs
            all_runs.sort(key=lambda run: run[0])
            best.setdefault(k, {})[p] = all_runs[len(all_runs) // 2 if stat == "rounds" else 0]
    return best, errs, mach


def into_page(page, name, text):
    """Writes a text between the lines `<!-- NAME: begin -->` and `<!-- NAME: end -->` of a page."""
    begin, end = "<!-- %s: begin -->\n" % name, "<!-- %s: end -->" % name
    head, rest = open(page).read().split(begin)
    open(page, "w").write(head + begin + text + "\n" + end + rest.split(end)[1])
