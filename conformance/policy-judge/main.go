// Command policy-judge says which packets the policies of a cluster allow, as
// kube-network-policies evaluates them: the evaluators of NetworkPolicy and of both tiers
// of ClusterNetworkPolicy, in the order in which its own program runs them.
//
// It reads a case from each line of stdin, and writes one line with its verdicts to
// stdout. Both are JSON.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// maxLine limits the length of a line in bytes.
const maxLine = 64 << 20

// answer is a line of the output.
type answer struct {
	// Whether each packet of the case is allowed, in the order of the packets.
	Verdicts []bool `json:"verdicts"`
	// Why the case cannot be judged; empty if it was.
	Error string `json:"error,omitempty"`
}

func main() {
	if err := run(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "policy-judge:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	answers := json.NewEncoder(out)
	for lines.Scan() {
		if err := answers.Encode(judge(ctx, lines.Bytes())); err != nil {
			return err
		}
	}
	return lines.Err()
}

func judge(ctx context.Context, line []byte) answer {
	cluster, packets, err := parse(line)
	if err != nil {
		return answer{Error: err.Error()}
	}
	engine, err := cluster.engine()
	if err != nil {
		return answer{Error: err.Error()}
	}
	verdicts := make([]bool, len(packets))
	for index := range packets {
		verdicts[index], err = engine.EvaluatePacket(ctx, &packets[index])
		if err != nil {
			return answer{Error: fmt.Sprintf("packet %d: %v", index, err)}
		}
	}
	return answer{Verdicts: verdicts}
}
