# Prints each flaky test of a JUnit report of cargo-nextest: a line `== BINARY TEST`, then the
# output of the tries that failed.

function text(line) {
    gsub(/<[^>]*>/, "", line)
    gsub(/&lt;/, "<", line)
    gsub(/&gt;/, ">", line)
    gsub(/&quot;/, "\"", line)
    gsub(/&apos;/, "'", line)
    gsub(/&amp;/, "\\&", line)
    return line
}

function attribute(line, name) {
    if (!match(line, " " name "=\"[^\"]*\"")) return ""
    return text(substr(line, RSTART + length(name) + 3, RLENGTH - length(name) - 4))
}

/^ *<testcase / { test = attribute($0, "classname") " " attribute($0, "name"); named = 0 }

/^ *<flakyFailure / {
    if (!named) print "== " test
    named = failed = 1
}

# The output is in these two; what stands before them repeats the end of it.
failed && /^ *<system-(out|err)>/ { shown = 1 }
failed && shown { print text($0) }
/<\/system-(out|err)>$/ { shown = 0 }
/<\/flakyFailure>/ { failed = shown = 0 }
