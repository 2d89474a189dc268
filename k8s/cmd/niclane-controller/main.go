// SPDX-License-Identifier: Apache-2.0

// Niclane-controller gives each node the lanes of the LanePolicy that it follows, a few nodes at
// a time, and writes into each policy's status how many nodes have applied it. It runs once in
// a cluster: several instances elect one. It has no rights on nodes and needs none. With -remove, it
// takes niclane off all nodes instead.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// version is set by the linker.
var version = "unknown"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "niclane-controller:", err)
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

var errUsage = errors.New("see niclane-controller -help")

// leaseName is the name of the Lease by which one instance is elected.
const leaseName = "niclane-controller"

func run(args []string) error {
	f := flag.NewFlagSet("niclane-controller", flag.ContinueOnError)
	kubeconfig := f.String("kubeconfig", "", "kubeconfig file (default: the pod's service account)")
	namespace := f.String("namespace", os.Getenv("NAMESPACE"),
		"namespace of the Lease by which one instance is elected (default: the environment's NAMESPACE)")
	listen := f.String("listen", ":8081", "IP:PORT that serves /healthz")
	claims := f.Bool("claims", true, "make a DeviceClass for each class with offeredAs: Claim")
	removal := f.Bool("remove", false, "remove niclane from all nodes, and exit; the controller is stopped first")
	deployment := f.String("deployment", leaseName, "with -remove: the controller's Deployment")
	patience := f.Duration("patience", 4*time.Minute, "with -remove: how long the nodes may take")
	show := f.Bool("version", false, "print the version")
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
	case f.NArg() > 0:
		return fmt.Errorf("%q: no arguments are taken; %w", f.Args(), errUsage)
	case *namespace == "":
		return fmt.Errorf("-namespace is missing; %w", errUsage)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.UserAgent = "niclane-controller/" + version
	config.QPS, config.Burst = 100, 200 // a rollout to thousands of nodes is one write for each
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *removal {
		return remove(ctx, config, &remover{namespace: *namespace, deployment: *deployment, claims: *claims,
			patience: *patience, log: log})
	}
	return serve(ctx, config, *namespace, *listen, *claims, log)
}

// serve runs the controller while this instance is elected, until ctx ends or the election is
// lost.
func serve(ctx context.Context, config *rest.Config, namespace, listen string, claims bool, log *slog.Logger) error {
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	nodes, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	var now atomic.Pointer[controller]
	health := &http.Server{Addr: listen, ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { now.Load().ServeHTTP(w, r) })}
	recorder := newRecorder(ctx, typed)
	now.Store(newController(objects, nodes, typed.Discovery(), claims, recorder, log))
	failed := make(chan error, 1)
	go func() { failed <- health.ListenAndServe() }()
	defer health.Close()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case err := <-failed:
			log.Error("health cannot be served", "error", err)
			cancel()
		case <-ctx.Done():
		}
	}()
	// An API server that does not answer for a moment ends the election. The process goes on: a
	// restarted container would wait for minutes.
	for ; ctx.Err() == nil; now.Store(newController(objects, nodes, typed.Discovery(), claims, recorder, log)) {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName},
				Client: typed.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: name}},
			Name: leaseName, ReleaseOnCancel: true,
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: now.Load().run,
				OnStoppedLeading: func() { log.Info("not elected any more") },
			},
		})
	}
	return nil
}
