// Command coredns is CoreDNS with the plugins that the end-to-end tests configure,
// and no others. With all of its plugins, CoreDNS takes several times as long to
// build, most of it for the libraries of cloud providers.
package main

import (
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	coremain.Run()
}
