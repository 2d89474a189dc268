// SPDX-License-Identifier: Apache-2.0

// Command niclane-agent makes the lanes of a node as the LanePolicy says, offers them to
// Kubernetes, and puts pods into them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/niclane/niclane/k8s/agent"
	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/dra"
	"github.com/niclane/niclane/k8s/nri"
	"github.com/niclane/niclane/k8s/policy/adqk8s"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/poller"
	"github.com/niclane/niclane/watch/metrics"
)

// version is set by the linker.
var version = "unknown"

func main() {
	if len(os.Args) == 3 && os.Args[1] == poller.Command {
		// With these arguments, this process is the poller of a lane, not the agent.
		if err := poller.Main(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "niclane-agent:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "niclane-agent:", err)
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

var errUsage = errors.New("see niclane-agent -help")

func run(args []string) error {
	f := flag.NewFlagSet("niclane-agent", flag.ContinueOnError)
	name := f.String("node", os.Getenv("NODE_NAME"),
		"name of the node in Kubernetes (default: the environment's NODE_NAME)")
	kubeconfig := f.String("kubeconfig", "",
		"kubeconfig file (default: the pod's service account; its token is read again when it expires)")
	server := f.String("server", "", "address of the API server, instead of the kubeconfig's")
	stateDir := f.String("state-dir", journal.DefaultDir, "directory of the applied state; niclane's commands "+
		"use it too")
	runDir := f.String("run-dir", apply.DefaultRunDir, "directory of locks and sockets; niclane's commands use it too")
	socket := f.String("cni-socket", cni.DefaultSocket, "socket on which the agent answers niclane-cni")
	cniInstall := f.Bool("cni-install", false,
		"niclane-cni-install runs beside the agent: a removal of niclane from the node waits until it has removed "+
			"niclane-cni")
	nriSocket := f.String("nri", "",
		"the runtime's NRI socket (containerd and CRI-O: "+nri.DefaultSocket+"); with it, the runtime reports "+
			"pods without niclane-cni (default: none)")
	nriBandwidth := f.Bool("nri-bandwidth", true,
		"honour kubernetes.io/ingress-bandwidth and egress-bandwidth of pods that NRI reports; false where the CNI "+
			"plugin bandwidth does so")
	kubelet := f.String("kubelet-dir", "/var/lib/kubelet", "kubelet's directory")
	listen := f.String("listen", "unix:/run/niclane/agent.sock",
		"address that serves metrics and health: unix:PATH, or IP:PORT of a loopback address")
	probes := f.String("probes", "", "IP:PORT that serves /livez and /readyz to kubelet, on a loopback address")
	scrapes := f.String("metrics", "", "IP:PORT that serves metrics over TLS, to clients that the API server "+
		"allows to "+
		"get /metrics (default: none)")
	claims := f.Bool("claims", true, "offer classes with offeredAs: Claim by Dynamic Resource Allocation")
	services := f.Bool("services", false,
		"also put into lanes the packets that come by node ports, load balancers and external addresses of the "+
			"pods' Services; needs the right to read all Services")
	verbose := f.Bool("v", false, "log more")
	show := f.Bool("version", false, "print the version")
	convert := f.String("convert-adq", "",
		"convert a file adq-cluster-config.json of Intel's plugins to LanePolicies, print them, and exit")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return errUsage
	}
	switch {
	case *show:
		fmt.Println(version)
		return nil
	case *convert != "":
		return convertADQ(os.Stdout, *convert)
	case f.NArg() > 0:
		return fmt.Errorf("%q: no arguments are taken; %w", f.Args(), errUsage)
	case *name == "":
		return fmt.Errorf("-node is missing: in the DaemonSet it comes from spec.nodeName; %w", errUsage)
	case os.Geteuid() != 0:
		return errors.New("not root: niclane-agent reads and writes kernel state")
	}
	at, err := metrics.ParseAddress(*listen)
	if err != nil {
		return fmt.Errorf("-listen %w; %w", err, errUsage)
	}
	if p, err := netip.ParseAddrPort(*probes); *probes != "" && (err != nil || !p.Addr().IsLoopback()) {
		return fmt.Errorf("-probes %s: want IP:PORT of a loopback address; %w", *probes, errUsage)
	}
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	if err := writable(masked); err != nil {
		// This is no error: lanes that write nothing to these directories still work.
		log.Warn("lanes that need interrupts' processors or sysctls will fail", "err", err)
	}
	config, err := clientConfig(*kubeconfig, *server)
	if err != nil {
		return err
	}
	config.UserAgent = "niclane-agent/" + version
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	a, err := agent.New(agent.Options{
		Node: *name, Version: version, Client: client, StateDir: *stateDir, RunDir: *runDir,
		Socket: *socket, NRI: *nriSocket,
		CNIInstall: *cniInstall, NRIBandwidth: *nriBandwidth, Services: *services, KubeletDir: *kubelet,
		Probes: *probes, Scrapes: *scrapes, Listen: at, Log: log,
	})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.Info("begun", "node", *name, "version", version)
	if !*claims {
		return a.Run(ctx)
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	var driver sync.WaitGroup
	driver.Go(func() {
		offerClaims(ctx, dra.Options{Node: *name, Client: typed, Inventory: a.Inventory(), KubeletDir: *kubelet,
			Refused: a.RefusedDriver, Log: log})
	})
	err = a.Run(ctx)
	stop()
	driver.Wait()
	return err
}

func clientConfig(kubeconfig, server string) (*rest.Config, error) {
	if kubeconfig == "" && server == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags(server, kubeconfig)
}

// convertADQ converts Intel's configuration file at a path. It prints the policies as YAML, and the
// notes about them as comments.
func convertADQ(out io.Writer, path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	policies, notes, err := adqk8s.Convert(raw)
	if err != nil {
		return err
	}
	for _, n := range notes {
		fmt.Fprintln(out, "#", n)
	}
	for _, p := range policies {
		text, err := yaml.Marshal(map[string]any{
			"apiVersion": p.APIVersion, "kind": p.Kind, "metadata": map[string]any{"name": p.Name}, "spec": p.Spec,
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "---\n%s", text)
	}
	return nil
}
