# Fails where a document leads nowhere or is hard to read: a link to a file or a heading that
# is not there, a comment among commands to paste, a sentence of more than `longest` words, or
# more than `most` words in the user's part. The first input is the list of all files and
# folders, the others are the documents. Pages that tests write from the programs have the
# words of those, and only their links count.

BEGIN {
    longest = 30
    most = 15000
    # For those who change the code.
    longer["ARCHITECTURE.md"] = 40
    written["docs/cli.md"]
    written["docs/flags.md"]
}

FNR == 1 {
    end_sentence()
    input++
    fence = shell = comment = 0
}

input == 1 {
    exists[$0]
    next
}

FNR == 1 { is_page[FILENAME] }

FILENAME ~ /^docs\/[^\/]*\.md$/ && !(FILENAME in written) {
    words[FILENAME] += NF
    all_words += NF
}

/^[ \t]*(```|~~~)/ {
    end_sentence()
    fence = !fence
    shell = fence && /(```|~~~)sh$/
    next
}

# An interactive zsh takes a comment for words of the command.
shell && /(^|[ \t])#|^[ \t]*\$ / { fail(FILENAME ":" FNR ": a command with a comment or a prompt does not work when pasted") }

fence { next }

{
    line = without_comments($0)
    find_anchors(line)
    # Code has no links, and is one word of a sentence.
    gsub(/``[^`]+``|`[^`]*`/, "code", line)
    find_links(line)
    read_text(line)
}

END {
    end_sentence()
    for (link = 1; link <= links; link++) check(link)
    if (all_words > most) {
        for (page in words) text = text "\n" sprintf("%7d %s", words[page], page)
        fail("docs: " all_words " words in the user's part, at most " most ":" text)
    }
    exit failed
}

function fail(problem) {
    print problem > "/dev/stderr"
    failed = 1
}

# HTML comments may be longer than a line.
function without_comments(line,    result, at) {
    for (;;) {
        at = index(line, comment ? "-->" : "<!--")
        if (!at) return result (comment ? "" : line)
        if (!comment) result = result substr(line, 1, at - 1)
        line = substr(line, at + (comment ? 3 : 4))
        comment = !comment
    }
}

function find_anchors(line,    name, same) {
    while (match(line, /<a (id|name)="[^"]*"/)) {
        name = substr(line, RSTART, RLENGTH)
        gsub(/^[^"]*"|"$/, "", name)
        anchors[FILENAME "#" name]
        line = substr(line, RSTART + RLENGTH)
    }
    if (line !~ /^#+ /) return
    sub(/^#+ +/, "", line)
    # As GitHub names a heading: of a link only its text, and letters, digits and hyphens.
    while (match(line, /\]\([^)]*\)/)) line = substr(line, 1, RSTART - 1) substr(line, RSTART + RLENGTH)
    name = tolower(line)
    gsub(/[^a-z0-9 _-]/, "", name)
    gsub(/ /, "-", name)
    same = same_name[FILENAME "#" name]++
    anchors[FILENAME "#" name (same ? "-" same : "")]
}

function find_links(line,    target) {
    while (match(line, /\]\([^)]*\)/)) {
        target = substr(line, RSTART + 2, RLENGTH - 3)
        line = substr(line, RSTART + RLENGTH)
        sub(/[ \t]+".*"$/, "", target)
        if (target ~ /^[a-z]+:/) continue
        link_target[++links] = target
        link_file[links] = FILENAME
        link_line[links] = FNR
    }
}

function check(link,    target, file, anchor, at) {
    target = link_target[link]
    file = target
    at = index(target, "#")
    if (at) {
        anchor = substr(target, at + 1)
        file = substr(target, 1, at - 1)
    }
    file = file == "" ? link_file[link] : path(link_file[link], file)
    if (!(file in exists)) dead(link, "there is no " file)
    else if (at && file in is_page && !((file "#" anchor) in anchors)) dead(link, file " has no heading #" anchor)
}

function dead(link, why) {
    fail(link_file[link] ":" link_line[link] ": dead link (" link_target[link] "): " why)
}

# Where `target` leads from the folder of `file`.
function path(file, target,    count, parts, result, depth, i) {
    sub(/[^\/]*$/, "", file)
    count = split(file target, parts, "/")
    for (i = 1; i <= count; i++) {
        if (parts[i] == "" || parts[i] == ".") continue
        if (parts[i] == "..") depth--
        else result[++depth] = parts[i]
    }
    file = result[1]
    for (i = 2; i <= depth; i++) file = file "/" result[i]
    return file
}

# Paragraphs go on over lines; headings, rows of tables and items of lists begin anew.
function read_text(line,    count, cells, i) {
    if (FILENAME in written || line ~ /^[ \t]*$/ || line ~ /^#/) {
        end_sentence()
        return
    }
    while (match(line, /\]\([^)]*\)/)) line = substr(line, 1, RSTART - 1) substr(line, RSTART + RLENGTH)
    gsub(/<br>/, " | ", line)
    if (line ~ /^[ \t]*\|/) {
        count = split(line, cells, "|")
        for (i = 1; i <= count; i++) {
            end_sentence()
            add(cells[i])
        }
        end_sentence()
        return
    }
    if (sub(/^[ \t]*([-*+]|[0-9]+\.) /, "", line)) end_sentence()
    add(line)
}

function add(text,    count, parts, i) {
    count = split(text, parts, /[ \t]+/)
    for (i = 1; i <= count; i++) {
        # A mark alone, as a dash, is no word.
        if (parts[i] !~ /[A-Za-z0-9]/) continue
        if (!length_now) {
            begins = FNR
            file_now = FILENAME
        }
        length_now++
        if (length_now <= 8) opening = opening (opening == "" ? "" : " ") parts[i]
        if (parts[i] ~ /[.!?][])*_"]*$/) end_sentence()
    }
}

function end_sentence(    limit) {
    limit = file_now in longer ? longer[file_now] : longest
    if (length_now > limit) {
        fail(file_now ":" begins ": a sentence of " length_now " words, at most " limit ": \"" opening " …\"")
    }
    length_now = 0
    opening = ""
}
