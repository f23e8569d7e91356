// Command record runs tests of kube-proxy and writes down what they expect: the objects that
// a test gives to a proxier, and what has to become of each packet. It writes JSON into the
// folder that its argument names.
//
// The tests run in a copy of the module that go.mod pins. Some functions get another name in
// the copy, and the files in _hooks have functions with the original names, which call them
// and write down what passes. Nothing of the copy is kept.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const module = "k8s.io/kubernetes"

// recording is a package whose tests are recorded.
type recording struct {
	pkg string
	// Its files of tests that are kept, and those tests of them that run.
	files []string
	test  string
	// The file in _hooks.
	hook string
	// The file of what is expected, without its suffix.
	name string
	// Functions that get the prefix `upstream`, by file.
	renamed map[string][]string
	// Calls in a test file of a function f that become calls of recorded(t, f).
	wrapped map[string]string
}

var recordings = []recording{
	{
		pkg:   module + "/pkg/proxy/nftables",
		files: []string{"helpers_test.go", "proxier_test.go"},
		test:  "^Test",
		hook:  "packets_test.go",
		name:  "packets",
		renamed: map[string][]string{
			"helpers_test.go": {"runPacketFlowTests"},
			"proxier_test.go": {"NewFakeProxier"},
			"proxier.go": {
				"OnServiceUpdate", "OnEndpointSliceAdd", "OnEndpointSliceUpdate", "OnEndpointSliceDelete",
			},
		},
	},
	{
		pkg:     module + "/pkg/proxy",
		files:   []string{"topology_test.go"},
		test:    "^TestCategorizeEndpoints$",
		hook:    "topology_test.go",
		name:    "topology",
		wrapped: map[string]string{"topology_test.go": "CategorizeEndpoints"},
	},
	{
		pkg:     module + "/pkg/proxy/conntrack",
		files:   []string{"cleanup_test.go"},
		test:    "^Test(CleanStaleEntries|ServiceWithoutEndpoints)$",
		hook:    "conntrack_test.go",
		name:    "conntrack",
		wrapped: map[string]string{"cleanup_test.go": "CleanStaleEntries"},
	},
	{
		pkg:     module + "/pkg/proxy/util",
		files:   []string{"nodeport_addresses_test.go"},
		test:    "^TestGetNodeIPs$",
		hook:    "nodeport_addresses.go",
		name:    "nodeport_addresses",
		renamed: map[string][]string{"nodeport_addresses.go": {"NewNodePortAddresses", "GetNodeIPs"}},
	},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: record FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func run(folder string) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "record-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	source, err := copied(scratch)
	if err != nil {
		return err
	}
	for _, one := range recordings {
		if err := one.run(scratch, source, folder); err != nil {
			return fmt.Errorf("%s: %w", one.pkg, err)
		}
	}
	return nil
}

// copied makes a copy of the module in a folder, with a go.mod there that uses it. It gives
// the folder of the copy.
func copied(scratch string) (string, error) {
	listed, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", err
	}
	original := strings.TrimSpace(string(listed))
	source := filepath.Join(scratch, "module")
	if err := os.CopyFS(filepath.Join(source, "pkg"), os.DirFS(filepath.Join(original, "pkg"))); err != nil {
		return "", err
	}
	for from, to := range map[string]string{
		filepath.Join(original, "go.mod"): filepath.Join(source, "go.mod"),
		"go.mod":                          filepath.Join(scratch, "go.mod"),
		"go.sum":                          filepath.Join(scratch, "go.sum"),
	} {
		text, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return "", err
		}
	}
	edit := exec.Command("go", "mod", "edit", "-replace", module+"="+source, filepath.Join(scratch, "go.mod"))
	edit.Stderr = os.Stderr
	return source, edit.Run()
}

func (r *recording) run(scratch, source, folder string) error {
	tested := filepath.Join(source, strings.TrimPrefix(r.pkg, module))
	if err := keepTests(tested, r.files); err != nil {
		return err
	}
	hook, err := os.ReadFile(filepath.Join("record", "_hooks", r.hook))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tested, "recorded_"+r.hook), hook, 0o644); err != nil {
		return err
	}
	for file, names := range r.renamed {
		rename := func(file *ast.File) int { return renamed(file, names) }
		if err := rewrite(filepath.Join(tested, file), len(names), rename); err != nil {
			return err
		}
	}
	for file, name := range r.wrapped {
		wrap := func(file *ast.File) int { return wrapped(file, name) }
		if err := rewrite(filepath.Join(tested, file), -1, wrap); err != nil {
			return err
		}
	}
	lines := filepath.Join(scratch, r.name)
	test := exec.Command("go", "test", "-count=1", "-modfile", filepath.Join(scratch, "go.mod"), "-run", r.test, r.pkg)
	test.Env = append(os.Environ(), "RECORD="+lines)
	test.Stdout, test.Stderr = os.Stderr, os.Stderr
	if err := test.Run(); err != nil {
		return err
	}
	return collect(lines, filepath.Join(folder, r.name+".json"))
}

// keepTests removes the tests of a package but those in these files: others need packages
// that were not copied.
func keepTests(folder string, kept []string) error {
	tests, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		return err
	}
	for _, file := range tests {
		if slices.Contains(kept, filepath.Base(file)) {
			continue
		}
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return nil
}

// rewrite changes a source file. The number of changes has to be as expected; -1 is any but
// none.
func rewrite(name string, expected int, change func(*ast.File) int) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	changes := change(file)
	if changes == 0 || expected >= 0 && changes != expected {
		return fmt.Errorf("%s is not as this program knows it: %d changes", name, changes)
	}
	var text bytes.Buffer
	if err := format.Node(&text, files, file); err != nil {
		return err
	}
	return os.WriteFile(name, text.Bytes(), 0o644)
}

// renamed gives declared functions and methods other names.
func renamed(file *ast.File, names []string) int {
	changes := 0
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		for _, name := range names {
			if function.Name.Name == name {
				function.Name.Name = "upstream" + name
				changes++
			}
		}
	}
	return changes
}

// wrapped makes calls `name(…)` calls `recorded(t, name)(…)`.
func wrapped(file *ast.File, name string) int {
	changes := 0
	ast.Inspect(file, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		if called, ok := call.Fun.(*ast.Ident); ok && called.Name == name {
			call.Fun = &ast.CallExpr{
				Fun:  ast.NewIdent("recorded"),
				Args: []ast.Expr{ast.NewIdent("t"), ast.NewIdent(name)},
			}
			changes++
		}
		return true
	})
	return changes
}

// collect makes the lines that a hook has written one document.
func collect(lines, file string) error {
	text, err := os.ReadFile(lines)
	if err != nil {
		return err
	}
	var all []json.RawMessage
	decoder := json.NewDecoder(bytes.NewReader(text))
	for decoder.More() {
		var one json.RawMessage
		if err := decoder.Decode(&one); err != nil {
			return err
		}
		all = append(all, one)
	}
	document, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s: %d\n", filepath.Base(file), len(all))
	return os.WriteFile(file, append(document, '\n'), 0o644)
}
