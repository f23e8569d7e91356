# Reading Rust sources line by line, for `count` and `structure`. What they define for each
# line is `line_of_code(code, test)`: it is called for lines that are neither blank nor only a
# comment, with the code without the contents of strings, and whether it is of an item for
# tests only.

FNR == 1 {
    comments = 0
    closing = ""
    in_test = 0
}

{
    was_string = closing != ""
    code = code_of($0)
    if (code ~ /[^ \t]/ || (was_string && $0 ~ /[^ \t]/)) line_of_code(code, is_test(code))
}

# The line without comments and the contents of strings. `comments` is the depth of block
# comments, and `closing` what ends a string, over the ends of lines too.
function code_of(line,    result, token, at) {
    result = ""
    for (;;) {
        if (comments > 0) {
            if (!match(line, /\*\/|\/\*/)) return result
            comments += substr(line, RSTART, 2) == "/*" ? 1 : -1
            line = substr(line, RSTART + 2)
        } else if (closing == "\"") {
            if (!match(line, /^([^"\\]|\\.)*"/)) return result
            line = substr(line, RLENGTH + 1)
            closing = ""
            result = result "\"\""
        } else if (closing != "") {
            at = index(line, closing)
            if (!at) return result
            line = substr(line, at + length(closing))
            closing = ""
            result = result "\"\""
        } else {
            # A character too, as it may be a quote or a brace; a lifetime has no second quote.
            if (!match(line, /\/\/|\/\*|r#*"|"|'([^'\\]|\\[^u]|\\u[^']*)'/)) return result line
            token = substr(line, RSTART, RLENGTH)
            result = result substr(line, 1, RSTART - 1)
            line = substr(line, RSTART + RLENGTH)
            if (token == "//") return result
            if (token == "/*") comments = 1
            else if (token ~ /"$/ && token !~ /^'/) {
                closing = token
                sub(/^r/, "", closing)
                closing = "\"" substr(closing, 1, length(closing) - 1)
            }
        }
    }
}

# Whether the line is of an item below `#[cfg(test)]`, which ends with its last brace or with
# a semicolon, a field or variant with a comma.
function is_test(code,    is_end) {
    if (!in_test) {
        if (!sub(/^[ \t]*#\[cfg\(test\)\][ \t]*/, "", code)) return 0
        in_test = 1
        item = ""
        depth = 0
    }
    if (item == "" && code ~ /^[ \t]*(#\[.*\][ \t]*)?$/) return 1
    if (item == "") {
        item = code
        if (match(code, /(^|[ \t])mod [a-z_0-9]+;/)) {
            sub(/^.*mod /, "", code)
            test_files[folder_of(FILENAME) substr(code, 1, length(code) - 1)] = 1
            code = ";"
        }
    }
    depth += gsub(/[({[]/, "&", code) - gsub(/[])}]/, "&", code)
    is_end = "[;}][ \t]*$"
    if (item !~ /(^|[ \t])(const|enum|fn|impl|mod|static|struct|trait|type|use)[ \t<]/) is_end = "[;},][ \t]*$"
    if (depth == 0 && code ~ is_end) in_test = 0
    return 1
}

# Where the modules are that a file declares.
function folder_of(file) {
    if (file ~ /\/(lib|main|mod)\.rs$/) sub(/[a-z]+\.rs$/, "", file)
    else sub(/\.rs$/, "/", file)
    return file
}

# Whether a whole file is of tests: by its name or folder, or as a module that another file
# declares for tests, so only when all files are read.
function is_test_file(file) {
    if (file ~ /(^|\/)(tests|benches)\/|(^|[\/_])tests?\.rs$/) return 1
    sub(/(\/mod)?\.rs$/, "", file)
    for (;;) {
        if (file in test_files) return 1
        if (!sub(/\/[^\/]*$/, "", file)) return 0
    }
}
