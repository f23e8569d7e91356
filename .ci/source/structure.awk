# Fails where modules form a circle: `a` uses `b`, and by itself or by others `b` uses `a`.
# Only neighbours are compared, files and folders of one folder; a folder uses what any file
# in it uses, and a module may always use those that it is in. It fails too where a crate
# uses one that does not stand below it in the list of ARCHITECTURE.md. Tests may use all.

# The uses that close a circle today and are to go, each with what it waits for. One that
# closes none any more is an error.
function exceptions() {
    except("node-agent/src/serve", "metrics", "services", "one registry for all; a component will register its own metrics")
    except("planner/src/services/table", "known_slots", "groups", "numbers of an earlier run are read from its table; they will be saved in a file")
}

function line_of_code(code, test) {
    if (test || FILENAME !~ /^[a-z-]+\/src\//) return
    if (!(FILENAME in text)) files[++file_count] = FILENAME
    text[FILENAME] = text[FILENAME] " " code
}

END {
    exceptions()
    read_floors()
    for (f = 1; f <= file_count; f++) {
        if (is_test_file(files[f]) || files[f] ~ /^fuzz\//) continue
        module_of[files[f]] = module(files[f])
        is_module[module_of[files[f]]]
    }
    # First all names that modules take over from others, which stand for those.
    for (f = 1; f <= file_count; f++) if (files[f] in module_of) read_uses(files[f])
    for (use = 1; use <= use_count; use++) add_use(use_file[use], use_path[use])
    find_circles()
    exit failed
}

# The path of a file's module, with that of the crate's sources: `nft/src/look`.
function module(file) {
    sub(/\/(lib|main|mod)\.rs$/, "", file)
    sub(/\.rs$/, "", file)
    return file
}

function except(folder, from, to, why) {
    reason[folder ": " from " uses " to] = why
}

function fail(problem) {
    print problem > "/dev/stderr"
    failed = 1
}

# The crates in the order of the list, the highest first.
function read_floors(    line, parts) {
    while ((getline line < "ARCHITECTURE.md") > 0) {
        if (line ~ /^\| `[a-z-]+\/` \| `tweed-/) {
            split(line, parts, "`")
            floor_of[substr(parts[2], 1, length(parts[2]) - 1)] = ++floors
            gsub(/-/, "_", parts[4])
            folder_of_crate[parts[4]] = substr(parts[2], 1, length(parts[2]) - 1)
        }
    }
}

# Collects the paths that a file names: those of its `use` lines, and others in its code.
function read_uses(file,    rest, code, statement, crate) {
    rest = text[file]
    crate = file
    sub(/\/.*/, "", crate)
    if (!(crate in floor_of) && !(crate in unlisted)) {
        unlisted[crate]
        fail("ARCHITECTURE.md does not list the crate " crate "/")
    }
    code = ""
    while (match(rest, /(^|[^A-Za-z0-9_])use [^;]*;/)) {
        statement = substr(rest, RSTART, RLENGTH - 1)
        code = code substr(rest, 1, RSTART) " "
        rest = substr(rest, RSTART + RLENGTH)
        sub(/^.?use /, "", statement)
        gsub(/[ \t]+as[ \t]+/, "@", statement)
        gsub(/[ \t]/, "", statement)
        expand(file, "", statement)
    }
    code = code rest
    while (match(code, /(crate|self|super|tweed_[a-z_]+)(::[A-Za-z0-9_]+)+/)) {
        name_path(file, substr(code, RSTART, RLENGTH), 0)
        code = substr(code, RSTART + RLENGTH)
    }
}

# The paths of a `use` with braces: `a::{b, c::{d, e}}` are three.
function expand(file, before, tree,    at, depth, start, char, inner) {
    at = index(tree, "{")
    if (!at) {
        name_path(file, before tree, 1)
        return
    }
    inner = substr(tree, at + 1, length(tree) - at - 1) ","
    before = before substr(tree, 1, at - 1)
    start = 1
    depth = 0
    for (at = 1; at <= length(inner); at++) {
        char = substr(inner, at, 1)
        depth += (char == "{") - (char == "}")
        if (char == "," && depth == 0) {
            if (at > start) expand(file, before, substr(inner, start, at - start))
            start = at + 1
        }
    }
}

# Takes one path. In a `use` it gives its last name to the module, too.
function name_path(file, path, is_use,    name, parts, from, crate) {
    name = path
    sub(/^.*(::|@)/, "", name)
    sub(/@.*/, "", path)
    sub(/::self$/, "", path)
    if (name == "self") {
        name = path
        sub(/^.*::/, "", name)
    }
    gsub(/::/, "/", path)
    split(path, parts, "/")
    crate = file
    sub(/\/.*/, "", crate)
    if (parts[1] in folder_of_crate) {
        check_floor(file, crate, folder_of_crate[parts[1]])
        return
    }
    from = module_of[file]
    if (parts[1] == "crate") from = crate "/src"
    else if (parts[1] == "super") from = parent(from)
    else if (parts[1] != "self") {
        if (!((from "/" parts[1]) in is_module)) return
        path = "self/" path
    }
    sub(/^[a-z]+\/?/, "", path)
    while (path ~ /^super(\/|$)/) {
        from = parent(from)
        sub(/^super\/?/, "", path)
    }
    path = path == "" ? from : from "/" path
    use_file[++use_count] = file
    use_path[use_count] = path
    if (is_use && !((module_of[file], name) in alias)) alias[module_of[file], name] = path
}

function parent(path) {
    sub(/\/[^\/]*$/, "", path)
    return path
}

function check_floor(file, crate, other) {
    if (floor_of[other] < floor_of[crate] && !((file, other) in upward)) {
        upward[file, other]
        fail(file " uses " other "/, which stands above " crate "/ in ARCHITECTURE.md")
    }
}

# The module in which what the path names is defined.
function resolved(path, depth,    parts, count, at, found, rest) {
    count = split(path, parts, "/")
    found = parts[1] "/" parts[2]
    for (at = 3; at <= count; at++) {
        if ((found "/" parts[at]) in is_module) {
            found = found "/" parts[at]
            continue
        }
        if (!((found, parts[at]) in alias) || depth > 9) break
        rest = alias[found, parts[at]]
        for (at++; at <= count; at++) rest = rest "/" parts[at]
        return resolved(rest, depth + 1)
    }
    return found
}

# Notes which of two neighbours uses which.
function add_use(file, path,    from, to, count, others, at, folder, edge) {
    count = split(module_of[file], from, "/")
    others = split(resolved(path, 0), to, "/")
    folder = from[1]
    for (at = 2; at <= count && at <= others && from[at] == to[at]; at++) folder = folder "/" from[at]
    if (at > count || at > others) return
    if (folder == "cni-plugin/src" && from[at] == "verbs" && to[at] == "datapath" && at < others)
        fail(file " names a datapath: verbs use the trait only")
    edge = folder ": " from[at] " uses " to[at]
    if (edge in uses) return
    uses[edge] = file
    next_of[folder, from[at]] = next_of[folder, from[at]] " " to[at]
    edge_folder[edge] = folder
    edge_from[edge] = from[at]
    edge_to[edge] = to[at]
}

# Of each folder the shortest circle is told; when it is gone the next one is found.
function find_circles(    edge, folder, way, text, shortest, length_of) {
    for (edge in uses) {
        if (edge in reason) {
            if (way_back(edge, 0) != "") needed[edge]
        } else if ((way = way_back(edge, 1)) != "") {
            text = told(edge_folder[edge], edge_from[edge] " " way)
            if (!(edge_folder[edge] in shortest) || steps(way) < length_of[edge_folder[edge]] || \
                (steps(way) == length_of[edge_folder[edge]] && text < shortest[edge_folder[edge]])) {
                shortest[edge_folder[edge]] = text
                length_of[edge_folder[edge]] = steps(way)
            }
        }
    }
    for (edge in reason) {
        if (!(edge in needed)) fail(edge ": this closes no circle; remove it from the exceptions")
    }
    for (folder in shortest) fail(folder ": modules form a circle: " shortest[folder])
}

# The shortest way from the one that is used back to the one that uses it, as names; with
# `strictly` not by exceptions.
function way_back(edge, strictly,    folder, ways, queue, first, last, list, count, at, from) {
    folder = edge_folder[edge]
    queue[last = 1] = edge_to[edge]
    ways[edge_to[edge]] = edge_to[edge]
    for (first = 1; first <= last; first++) {
        from = queue[first]
        if (from == edge_from[edge]) return ways[from]
        count = split(next_of[folder, from], list, " ")
        for (at = 1; at <= count; at++) {
            if (list[at] in ways) continue
            if (strictly && ((folder ": " from " uses " list[at]) in reason)) continue
            ways[list[at]] = ways[from] " " list[at]
            queue[++last] = list[at]
        }
    }
    return ""
}

function steps(way,    list) {
    return split(way, list, " ")
}

# A way as text, with a file for each use.
function told(folder, way,    list, count, at, edge, text) {
    count = split(way, list, " ")
    for (at = 1; at < count; at++) {
        edge = list[at] " uses " list[at + 1]
        text = text (at > 1 ? ", " : "") edge " (" uses[folder ": " edge] ")"
    }
    return text
}
