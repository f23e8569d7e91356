// Command services-judge programs the kernel as kube-proxy does: it is kube-proxy's own
// proxier, in the mode nftables or iptables, told of the objects on stdin instead of by an
// API server.
//
// It reads a change of the objects from each line of stdin, brings the network namespace
// that it was started in to the state that they ask for, and writes a line to stdout. Both
// are JSON.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"k8s.io/klog/v2"
)

// maxLine limits the length of a line in bytes.
const maxLine = 64 << 20

// answer is a line of the output.
type answer struct {
	// Why the change was not made; empty if it was.
	Error string `json:"error,omitempty"`
}

func main() {
	if err := run(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "services-judge:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	answers := json.NewEncoder(out)
	var proxy *proxy
	// What the proxier logs is only of interest if it fails.
	var log bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(&log)
	for lines.Scan() {
		log.Reset()
		var said answer
		if err := judge(ctx, &proxy, lines.Bytes()); err != nil {
			klog.Flush()
			said.Error = err.Error() + "\n" + log.String()
		}
		if err := answers.Encode(said); err != nil {
			return err
		}
	}
	return lines.Err()
}

// judge makes the change of a line. The first one also has the options.
func judge(ctx context.Context, known **proxy, line []byte) error {
	change, err := parse(line)
	if err != nil {
		return err
	}
	if *known == nil {
		started, err := start(ctx, change.Options)
		if err != nil {
			return err
		}
		*known = started
	}
	return (*known).change(change)
}
