# Prints how many lines of code each crate has, without blank lines and comments: the product
# and its tests, and then what only tries the product.

function line_of_code(code, test) {
    lines[FILENAME, test]++
    files[FILENAME]
}

END {
    for (file in files) {
        split(file, parts, "/")
        if (parts[1] == "conformance") {
            beside[parts[1] "/" parts[2]] += lines[file, 0] + lines[file, 1]
        } else if (parts[1] == "fuzz") {
            beside[parts[1]] += lines[file, 0] + lines[file, 1]
        } else if (is_test_file(file)) {
            tests[parts[1]] += lines[file, 0] + lines[file, 1]
        } else {
            product[parts[1]] += lines[file, 0]
            tests[parts[1]] += lines[file, 1]
        }
    }
    row("crate", "product", "tests")
    for (count = sorted(product); count > 0; count--) {
        crate = names[count]
        row(crate, with_commas(product[crate]), with_commas(tests[crate]))
        all_product += product[crate]
        all_tests += tests[crate]
    }
    row("all", with_commas(all_product), with_commas(all_tests))
    print ""
    row("beside the product", "", "lines")
    for (count = sorted(beside); count > 0; count--) {
        row(names[count], "", with_commas(beside[names[count]]))
        all_beside += beside[names[count]]
    }
    row("all", "", with_commas(all_beside))
}

function row(name, first, second) {
    printf "%-22s%10s%10s\n", name, first, second
}

# Puts the indices of a list into `names`, the last by name first, and returns how many there
# are.
function sorted(list,    name, count, at) {
    for (name in list) {
        for (at = ++count; at > 1 && names[at - 1] < name; at--) names[at] = names[at - 1]
        names[at] = name
    }
    return count
}

function with_commas(number) {
    return number < 1000 ? number + 0 : int(number / 1000) "," sprintf("%03d", number % 1000)
}
