// SPDX-License-Identifier: Apache-2.0

// Command niclane-cni-install copies niclane-cni to a node, and adds it to the end of the list of
// CNI plugins of the node's pod network. If the list is written again, it adds niclane-cni again,
// until it ends. niclane-cni stays then, because pods that have lanes must not start without them.
// -remove removes niclane-cni. So does the program while niclane-agent says that niclane leaves the
// node.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/cni/chain"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "niclane-cni-install:", err)
		os.Exit(1)
	}
}

func run() error {
	program := flag.String("program", "/niclane-cni", "the plugin to install")
	bin := flag.String("bin-dir", "/opt/cni/bin", "the node's directory of plugins")
	dir := flag.String("conf-dir", "/etc/cni/net.d", "the node's directory of network configuration")
	status := flag.Bool("status-of-agent", false,
		"niclane-cni's STATUS fails while the agent does not answer or has no lanes; the runtime then reports "+
			"the node as NotReady")
	agent := flag.String("agent-socket", cni.DefaultSocket,
		"socket by which niclane-agent learns that niclane-cni cannot be chained")
	remove := flag.Bool("remove", false, "remove niclane-cni from the node's network configuration and from the node")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("%q: no arguments are taken", flag.Args())
	}
	n := &node{
		program: *program, installed: filepath.Join(*bin, chain.Type), dir: *dir, status: *status, agent: *agent,
		log: slog.New(slog.NewTextHandler(os.Stderr, nil)), asks: 2 * time.Second, firstAnswer: 10 * time.Second,
	}
	if *remove {
		return n.remove()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return n.follow(ctx)
}
