// SPDX-License-Identifier: Apache-2.0

// These settings stop the Go runtime from reading mounts and control groups at start to limit its
// CPUs. This would take a fortieth of the run time, and the program ends before it could use
// several CPUs.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command niclane-cni is a CNI plugin, chained after the plugins that give a pod its address. It
// asks niclane-agent to steer the pod's packets to the lanes that kubelet has given the pod. It
// stores nothing. A pod without a lane gets the result of the earlier plugins, whether the agent
// runs or not. A pod with a lane does not start without it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/networks/hostif"
	"github.com/niclane/niclane/k8s/pods/podresources"
)

// build is set by the linker.
var build = "unknown"

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: del, Check: check, GC: gc, Status: status},
		version.All, "niclane-cni "+build)
}

// The longest times until the agent's first answer (first), until its final answer (whole), and
// until kubelet's answer (kubelets). If the agent does not answer, a pod without a lane waits for
// first, and then up to kubelets.
const (
	first    = time.Second
	whole    = 30 * time.Second
	kubelets = 2 * time.Second
)

// errorTryAgain is the CNI specification's error code for a temporary failure.
const errorTryAgain = types.ErrTryAgainLater

// conf is the plugin's entry in the list of plugins.
type conf struct {
	types.PluginConf
	// Socket is the path of niclane-agent's socket. PodResources is the path of kubelet's socket: if
	// the agent does not answer, kubelet says which units and claims a pod has.
	Socket       string `json:"socket"`
	PodResources string `json:"podResources"`
	// ResourceNames are the names of classes' extended resources that do not begin with niclane.dev/.
	ResourceNames []string `json:"resourceNames"`
	// StatusOfAgent makes STATUS fail while the agent does not answer. It is for nodes on which all
	// pods have lanes.
	StatusOfAgent bool `json:"statusOfAgent"`

	RuntimeConfig struct {
		Bandwidth *struct {
			IngressRate uint64 `json:"ingressRate"`
			EgressRate  uint64 `json:"egressRate"`
		} `json:"bandwidth"`
	} `json:"runtimeConfig"`
}

func parse(args *skel.CmdArgs) (*conf, error) {
	c := &conf{
		Socket: cni.DefaultSocket, PodResources: podresources.DefaultSocket,
		ResourceNames: []string{"net.intel.com/adq", "net.intel.com/adq-shared"},
	}
	if err := json.Unmarshal(args.StdinData, c); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "niclane-cni: configuration", err.Error())
	}
	return c, nil
}

// identity sets the pod and the sandbox in a request. ok is false if it is not a Kubernetes pod.
func identity(args *skel.CmdArgs, r *cni.Request) (ok bool) {
	r.Namespace, r.Pod, r.UID = cni.PodOf(args.Args)
	r.Sandbox, r.IfName = args.ContainerID, args.IfName
	return r.Namespace != "" && r.Pod != "" && r.UID != ""
}

func add(args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	if c.RawPrevResult == nil {
		return types.NewError(types.ErrInvalidNetworkConfig,
			"niclane-cni has to stand after the plugin that gives pods their addresses", "no prevResult")
	}
	if err := version.ParsePrevResult(&c.PluginConf); err != nil {
		return types.NewError(types.ErrDecodingFailure, "niclane-cni: prevResult", err.Error())
	}
	r := cni.Request{Command: cni.Add, Network: c.Name}
	// niclane-agent has written a list of the pods that cannot have a lane. Most pods are in this
	// list, and need not wait for the agent.
	if identity(args, &r) && !cni.HasNoLane(c.Socket, r.UID) {
		if err := fill(c, args.Netns, &r); err != nil {
			return err
		}
		if err := ask(c, r); err != nil {
			return err
		}
	}
	return types.PrintResult(c.PrevResult, c.CNIVersion)
}

// fill sets addresses and the host's interface in a request, from the earlier plugins' result, and
// the rates, from the runtime.
func fill(c *conf, netns string, r *cni.Request) error {
	res, err := current.NewResultFromResult(c.PrevResult)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, "niclane-cni: prevResult", err.Error())
	}
	for _, ip := range res.IPs {
		if i := ip.Interface; i != nil && *i >= 0 && *i < len(res.Interfaces) && res.Interfaces[*i].Sandbox == "" {
			continue // the address is on an interface of the host
		}
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			r.Addrs = append(r.Addrs, a.Unmap())
		}
	}
	r.HostIf = hostEnd(res.Interfaces, netns, r.IfName)
	if b := c.RuntimeConfig.Bandwidth; b != nil {
		r.IngressRate, r.EgressRate = b.IngressRate, b.EgressRate
	}
	return nil
}

// hostEnd returns the name of the host's end of the pod's interface: the peer of ifName in netns,
// whatever its name is. If the kernel does not know it, hostEnd takes the host's interface that the
// earlier plugins have listed, if it is the only one. It returns "" if the end is not known.
func hostEnd(all []*current.Interface, netns, ifName string) string {
	if name := hostif.OfPath(netns, ifName); name != "" {
		return name
	}
	name := ""
	for _, i := range all {
		switch {
		case i.Sandbox != "":
		case name != "":
			return ""
		default:
			name = i.Name
		}
	}
	return name
}

// ask asks the agent to put the pod into its lanes. If the agent does not answer, it asks kubelet
// whether the pod has a lane. It returns an error if the pod must not start.
func ask(c *conf, r cni.Request) error {
	ctx, cancel := context.WithTimeout(context.Background(), whole)
	defer cancel()
	lane, err := cni.Call(ctx, c.Socket, r, first)
	name := r.Namespace + "/" + r.Pod
	switch {
	case err == nil:
		return nil
	case lane:
		return types.NewError(errorTryAgain, "niclane: pod "+name+" is not in its lane: "+err.Error(), "")
	}
	// The agent does not answer, or does not know whether the pod has a lane.
	given, kerr := asked(ctx, c, r)
	switch {
	case kerr != nil && cni.AsksForLane(c.Socket, r.UID):
		return types.NewError(errorTryAgain,
			fmt.Sprintf("niclane: pod %s asks for a lane and cannot start without it: %v; %v", name, err, kerr), "")
	case kerr != nil:
		// It is not known whether the pod has a lane. If it has one, the agent puts the pod into it
		// later, or sends an event about the pod.
		fmt.Fprintf(os.Stderr, "niclane-cni: pod %s starts, and it is not known whether it has a lane: %v; %v\n",
			name, err, kerr)
		return nil
	case given != "":
		return types.NewError(errorTryAgain,
			fmt.Sprintf("niclane: pod %s has %s and cannot start without its lane: %v", name, given, err), "")
	}
	return nil
}

// asked asks kubelet which lanes the pod has. It returns the name of a lane's resource or claim, ""
// if the pod has none.
func asked(ctx context.Context, c *conf, r cni.Request) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, kubelets)
	defer cancel()
	pod, err := podresources.New(c.PodResources).Get(ctx, r.Namespace, r.Pod)
	if err != nil || pod == nil {
		return "", err
	}
	for _, ct := range pod.Containers {
		for _, d := range ct.Devices {
			if strings.HasPrefix(d.Resource, "niclane.dev/") || slices.Contains(c.ResourceNames, d.Resource) {
				return d.Resource, nil
			}
		}
		for _, cl := range ct.Claims {
			if slices.Contains(cl.Drivers, "niclane.dev") {
				return "the claim " + cl.Name, nil
			}
		}
	}
	return "", nil
}

// del never returns an error. If the request fails, the agent itself finds later that the pod has
// ended.
func del(args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return nil
	}
	r := cni.Request{Command: cni.Del}
	if identity(args, &r) && cni.HasNoLane(c.Socket, r.UID) {
		return nil
	}
	if err := call(c, r); err != nil {
		fmt.Fprintln(os.Stderr, "niclane-cni: DEL:", err)
	}
	return nil
}

func check(args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	r := cni.Request{Command: cni.Check}
	if !identity(args, &r) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), whole)
	defer cancel()
	lane, err := cni.Call(ctx, c.Socket, r, first)
	if err == nil {
		return nil
	}
	if !lane {
		given, kerr := asked(ctx, c, r)
		if kerr == nil && given == "" {
			return nil
		}
	}
	return types.NewError(errorTryAgain, "niclane: pod "+r.Namespace+"/"+r.Pod+": "+err.Error(), "")
}

func gc(args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	r := cni.Request{Command: cni.GC, Network: c.Name}
	for _, v := range c.ValidAttachments {
		r.Valid = append(r.Valid, cni.Attachment{Sandbox: v.ContainerID, IfName: v.IfName})
	}
	if err := call(c, r); err != nil && !errors.Is(err, cni.ErrNoAgent) {
		return types.NewError(types.ErrInternal, "niclane: GC: "+err.Error(), "")
	}
	return nil
}

// errorNotAvailable is the CNI specification's STATUS code for a plugin that cannot serve
// ADD.
const errorNotAvailable = 50

// status returns an error if ADD cannot be served. If STATUS fails, the runtime starts no pod at
// all on the node (containerd sets NetworkReady to false, and the node becomes NotReady). But pods
// without a lane can start without the agent. So status asks the agent only if the configuration
// says so (StatusOfAgent). Pods with lanes do not need it: the scheduler does not choose a node
// with unhealthy units, and an error of ADD says why a pod does not start.
func status(args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil || !c.StatusOfAgent {
		return err
	}
	if err := call(c, cni.Request{Command: cni.Status}); err != nil {
		return types.NewError(errorNotAvailable, "niclane: pods with lanes cannot start: "+err.Error(), "")
	}
	return nil
}

func call(c *conf, r cni.Request) error {
	ctx, cancel := context.WithTimeout(context.Background(), whole)
	defer cancel()
	_, err := cni.Call(ctx, c.Socket, r, first)
	return err
}
