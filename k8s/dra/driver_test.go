// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/niclane/niclane/k8s/agent/inventory"
	"github.com/niclane/niclane/k8s/dra"
)

// claimFor returns a claim to which the given devices of node n1 are allocated.
func claimFor(name string, devices ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Status: resourceapi.ResourceClaimStatus{
			Allocation: &resourceapi.AllocationResult{},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p",
				UID: "pod-" + types.UID(name)}},
		},
	}
	for i, d := range devices {
		result := resourceapi.DeviceRequestAllocationResult{Request: fmt.Sprintf("r%d", i), Driver: dra.DriverName,
			Pool: "n1", Device: d}
		if d == "web" {
			result.ShareID = ptr.To(types.UID("11111111-2222-3333-4444-555555555555"))
		}
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, result)
	}
	return c
}

func withParameters(c *resourceapi.ResourceClaim, source resourceapi.AllocationConfigSource, text string,
	requests ...string) *resourceapi.ResourceClaim {
	c.Status.Allocation.Devices.Config = append(c.Status.Allocation.Devices.Config,
		resourceapi.DeviceAllocationConfiguration{
			Source: source, Requests: requests,
			DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver: dra.DriverName, Parameters: runtime.RawExtension{Raw: []byte(text)},
			}},
		})
	return c
}

// A kubelet does what kubelet does with the driver: it finds the registration socket and sends
// requests.
type kubelet struct {
	t      *testing.T
	dir    string
	client *fake.Clientset
	cancel context.CancelFunc
	ended  chan error
	// refused has what the driver passes on of the answers to its registration.
	refused chan string
}

var (
	claims   = resourceapi.SchemeGroupVersion.WithResource("resourceclaims")
	slicesOf = resourceapi.SchemeGroupVersion.WithResource("resourceslices")
)

// api returns a fake API server with node n1 and the given claims.
func api(all ...*resourceapi.ResourceClaim) *fake.Clientset {
	objects := []runtime.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-n1"}}}
	for _, c := range all {
		objects = append(objects, c.DeepCopy())
	}
	client := fake.NewClientset(objects...)
	// The fake clientset does not generate names or versions, and does not support server-side apply
	// of a status. The reactors below do so.
	var versions atomic.Int64
	stored := func(a clienttesting.Action) (bool, runtime.Object, error) {
		s := a.(clienttesting.CreateAction).GetObject().(*resourceapi.ResourceSlice)
		s.ResourceVersion = fmt.Sprint(versions.Add(1))
		if s.Name == "" {
			s.Name, s.UID = s.GenerateName+s.ResourceVersion, types.UID("u-"+s.ResourceVersion)
		}
		return false, nil, nil // the tracker continues with the object
	}
	client.PrependReactor("create", "resourceslices", stored)
	client.PrependReactor("update", "resourceslices", stored)
	client.PrependReactor("patch", "resourceclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.PatchAction)
		var said resourceapi.ResourceClaim
		if err := json.Unmarshal(p.GetPatch(), &said); err != nil {
			return true, nil, err
		}
		o, err := client.Tracker().Get(claims, p.GetNamespace(), p.GetName())
		if err != nil {
			return true, nil, err
		}
		c := o.(*resourceapi.ResourceClaim).DeepCopy()
		if p.GetPatchType() != types.ApplyPatchType || p.GetSubresource() != "status" || said.UID != c.UID ||
			said.APIVersion != "resource.k8s.io/v1" || said.Kind != "ResourceClaim" {
			return true, nil, fmt.Errorf("not the status of %s applied: %s", c.UID, p.GetPatch())
		}
		c.Status.Devices = said.Status.Devices
		return true, c, client.Tracker().Update(claims, c, p.GetNamespace())
	})
	return client
}

func start(t *testing.T, i inventory.Inventory, all ...*resourceapi.ResourceClaim) *kubelet {
	t.Helper()
	// A Unix socket's path has at most 107 bytes.
	dir, err := os.MkdirTemp("/tmp", "dra-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Mkdir(filepath.Join(dir, "plugins_registry"), 0o755); err != nil {
		t.Fatal(err)
	}
	k := &kubelet{t: t, dir: dir, client: api(all...), refused: make(chan string, 16)}
	k.run(i)
	t.Cleanup(func() { k.stop() })
	return k
}

func (k *kubelet) run(i inventory.Inventory) {
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel, k.ended = cancel, make(chan error, 1)
	go func() {
		k.ended <- dra.Run(ctx, dra.Options{Node: "n1", Client: k.client, Inventory: i, KubeletDir: k.dir,
			Refused: func(reason string) { k.refused <- reason }, Log: slog.New(slog.NewTextHandler(k.t.Output(), nil))})
	}()
}

func (k *kubelet) stop() {
	k.t.Helper()
	k.cancel()
	if err, ok := <-k.ended; ok && err != nil {
		k.t.Error(err)
	}
	close(k.ended)
}

func dial(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	until(t, "there is "+filepath.Base(path), func() (bool, string) {
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
		}
		return err == nil, fmt.Sprint(err)
	})
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// plugin registers the driver as kubelet does, and returns a client of the driver.
func (k *kubelet) plugin() draapi.DRAPluginClient {
	k.t.Helper()
	conn, _ := k.register()
	return draapi.NewDRAPluginClient(conn)
}

// register does kubelet's registration of the driver. It returns a connection to the driver, and
// the names of the services that the driver supports.
func (k *kubelet) register() (conn *grpc.ClientConn, services []string) {
	k.t.Helper()
	registration := registerapi.NewRegistrationClient(dial(k.t,
		filepath.Join(k.dir, "plugins_registry", dra.DriverName+"-reg.sock")))
	info, err := registration.GetInfo(k.t.Context(), &registerapi.InfoRequest{})
	if err != nil {
		k.t.Fatal(err)
	}
	if info.Name != dra.DriverName || info.Type != registerapi.DRAPlugin {
		k.t.Errorf("registered: %v", info)
	}
	return dial(k.t, info.Endpoint), info.SupportedVersions
}

// TestRegistrationRefused checks that kubelet's answers to the registration are passed on.
func TestRegistrationRefused(t *testing.T) {
	k := start(t, newInventory(node()))
	registration := registerapi.NewRegistrationClient(dial(t,
		filepath.Join(k.dir, "plugins_registry", dra.DriverName+"-reg.sock")))
	for _, c := range []struct {
		status *registerapi.RegistrationStatus
		want   string
	}{
		{&registerapi.RegistrationStatus{Error: "the name is taken"}, "the name is taken"},
		{&registerapi.RegistrationStatus{}, "kubelet gives no reason"},
		{&registerapi.RegistrationStatus{PluginRegistered: true}, ""},
	} {
		_, err := registration.NotifyRegistrationStatus(t.Context(), c.status)
		if (err == nil) != c.status.PluginRegistered {
			t.Error(err)
		}
		if got := <-k.refused; got != c.want {
			t.Errorf("%v: passed on %q, want %q", c.status.PluginRegistered, got, c.want)
		}
	}
}

func asks(c *resourceapi.ResourceClaim) *draapi.NodePrepareResourcesRequest {
	return &draapi.NodePrepareResourcesRequest{
		Claims: []*draapi.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}},
	}
}

func (k *kubelet) prepare(plugin draapi.DRAPluginClient,
	c *resourceapi.ResourceClaim) *draapi.NodePrepareResourceResponse {
	k.t.Helper()
	r, err := plugin.NodePrepareResources(k.t.Context(), asks(c))
	if err != nil {
		k.t.Fatal(err)
	}
	return r.Claims[string(c.UID)]
}

func (k *kubelet) unprepare(plugin draapi.DRAPluginClient, c *resourceapi.ResourceClaim) {
	k.t.Helper()
	r, err := plugin.NodeUnprepareResources(k.t.Context(), &draapi.NodeUnprepareResourcesRequest{
		Claims: []*draapi.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}},
	})
	if err != nil {
		k.t.Fatal(err)
	}
	if text := r.Claims[string(c.UID)].Error; text != "" {
		k.t.Error(text)
	}
}

// slices returns the published slices, by name.
func (k *kubelet) slices() (out []*resourceapi.ResourceSlice) {
	k.t.Helper()
	list, err := k.client.ResourceV1().ResourceSlices().List(k.t.Context(), metav1.ListOptions{})
	if err != nil {
		k.t.Fatal(err)
	}
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	slices.SortFunc(out, func(a, b *resourceapi.ResourceSlice) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// published returns the names of the published devices.
func (k *kubelet) published() string {
	k.t.Helper()
	var names []string
	for _, s := range k.slices() {
		for _, d := range s.Spec.Devices {
			names = append(names, s.Spec.Pool.Name+"/"+d.Name)
		}
	}
	return strings.Join(names, " ")
}

func until(t *testing.T, what string, holds func() (bool, string)) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		ok, how := holds()
		if ok {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("not in time: %s: %s", what, how)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestPrepare checks that a claim can be prepared twice with the same result, and be released.
func TestPrepare(t *testing.T) {
	i := newInventory(node())
	c := withParameters(claimFor("a", "redis-1", "web"), resourceapi.AllocationConfigSourceClaim,
		`{"apiVersion": "niclane.dev/v1alpha1", "kind": "LaneParameters", "ports": ["6379"]}`, "r0")
	k := start(t, i, c)
	plugin := k.plugin()
	for range 2 {
		r := k.prepare(plugin, c)
		if r.Error != "" || len(r.Devices) != 2 || r.Devices[0].DeviceName != "redis-1" ||
			r.Devices[0].PoolName != "n1" || r.Devices[1].DeviceName != "web" {
			t.Fatalf("prepared: %v", r)
		}
		share := string(*c.Status.Allocation.Devices.Results[1].ShareID)
		if d := r.Devices; d[0].ShareId != nil || d[1].GetShareId() != share ||
			!slices.Equal(d[1].RequestNames, []string{"r1"}) {
			t.Errorf("prepared: %v", r)
		}
	}
	holds := i.Holds()
	if len(holds) != 1 {
		t.Fatalf("holds: %+v", holds)
	}
	h := holds[0]
	if h.Key != "uid-a" || h.Claim != "default/a" || len(h.Pods) != 1 || h.Pods[0] != "pod-a" {
		t.Errorf("hold: %+v", h)
	}
	if u := h.Units[0]; u.Class != "redis" || u.Unit != "redis-1" || u.Parameters == nil ||
		u.Parameters.Ports[0] != "6379" {
		t.Errorf("exclusive: %+v", u)
	}
	if u := h.Units[1]; u.Class != "web" || u.Unit != "" || u.Share == "" || u.Parameters != nil {
		t.Errorf("shared: %+v", u)
	}
	for range 2 {
		k.unprepare(plugin, c)
	}
	if holds := i.Holds(); len(holds) != 0 {
		t.Errorf("left: %+v", holds)
	}
}

// TestRestart ends the driver after it has prepared a claim. The next driver prepares the claim
// again without a change, and releases it.
func TestRestart(t *testing.T) {
	i, c := newInventory(node()), claimFor("a", "redis-0")
	k := start(t, i, c)
	if r := k.prepare(k.plugin(), c); r.Error != "" {
		t.Fatal(r.Error)
	}
	k.stop()
	k.run(i)
	plugin := k.plugin()
	if r := k.prepare(plugin, c); r.Error != "" {
		t.Fatal(r.Error)
	}
	k.unprepare(plugin, c)
	if holds := i.Holds(); len(holds) != 0 {
		t.Errorf("left: %+v", holds)
	}
}

// TestHoldsOfNothing starts the driver with holds of claims that the cluster no longer has, as after
// kubeadm reset and join. The driver releases them, and keeps those of claims that exist.
func TestHoldsOfNothing(t *testing.T) {
	i, here, again := newInventory(node()), claimFor("here", "redis-0"), claimFor("again")
	for key, claim := range map[string]string{"uid-here": "default/here", "uid-gone": "default/gone",
		"uid-before": "default/again"} {
		if err := i.Hold(t.Context(), inventory.Hold{Key: key, Claim: claim}); err != nil {
			t.Fatal(err)
		}
	}
	start(t, i, here, again)
	until(t, "only the claim that exists has a hold", func() (bool, string) {
		holds := i.Holds()
		return len(holds) == 1 && holds[0].Key == "uid-here", fmt.Sprint(holds)
	})
}

// TestRefused checks that invalid claims are refused, that the errors name the problem, and that no
// unit is held for them.
func TestRefused(t *testing.T) {
	const good = `{"apiVersion": "niclane.dev/v1alpha1", "kind": "LaneParameters"}`
	admin := claimFor("admin", "redis-0")
	admin.Status.Allocation.Devices.Results[0].AdminAccess = ptr.To(true)
	elsewhere := claimFor("elsewhere", "redis-0")
	elsewhere.Status.Allocation.Devices.Results[0].Pool = "n2"
	for _, test := range []struct {
		claim *resourceapi.ResourceClaim
		want  string
	}{
		{claimFor("unknown", "redis-7"), "device redis-7: the class has no such unit"},
		{claimFor("resource", "old-0"), "device old-0: the class has no such unit"},
		{admin, "admin access"},
		{elsewhere, `in pool "n2", want this node's pool, "n1"`},
		{withParameters(claimFor("typo", "redis-0"), "FromClaim",
			`{"apiVersion": "niclane.dev/v1alpha1", "kind": "LaneParameters", "prots": []}`), `unknown field "prots"`},
		{withParameters(claimFor("kind", "redis-0"), "FromClaim", `{"apiVersion": "v1", "kind": "LaneParameters"}`),
			`found apiVersion "v1"`},
		{withParameters(withParameters(claimFor("twice", "redis-0"), "FromClaim", good), "FromClaim", good, "r0"),
			"config[0] and [1]"},
		{withParameters(claimFor("class", "redis-0"), "FromClass", `{}`), `config[0]: parameters: found apiVersion ""`},
	} {
		t.Run(test.claim.Name, func(t *testing.T) {
			i := newInventory(node())
			k := start(t, i, test.claim)
			r := k.prepare(k.plugin(), test.claim)
			if !strings.Contains(r.Error, test.want) || !strings.Contains(r.Error, "claim default/"+test.claim.Name) {
				t.Errorf("refused with %q, want %q", r.Error, test.want)
			}
			if holds := i.Holds(); len(holds) != 0 {
				t.Errorf("held: %+v", holds)
			}
		})
	}
}

// TestNotTheClaim checks which claims the driver refuses: those that the API server does not have,
// that have another UID there, or that are not allocated.
func TestNotTheClaim(t *testing.T) {
	a, empty := claimFor("a", "redis-0"), claimFor("empty")
	empty.Status.Allocation = nil
	i := newInventory(node())
	k := start(t, i, a, empty)
	plugin := k.plugin()
	before := a.DeepCopy()
	before.UID = "uid-before"
	for _, test := range []struct {
		claim *resourceapi.ResourceClaim
		want  string
	}{
		{before, " got replaced"}, {empty, " not allocated"},
		{claimFor("gone", "redis-0"), `: resourceclaims.resource.k8s.io "gone" not found`},
	} {
		_, err := plugin.NodePrepareResources(t.Context(), asks(test.claim))
		if err == nil || !strings.Contains(err.Error(), "claim default/"+test.claim.Name+test.want) {
			t.Errorf("%s: refused with %v, want %q", test.claim.Name, err, test.want)
		}
	}
	if holds := i.Holds(); len(holds) != 0 {
		t.Errorf("held: %+v", holds)
	}
}

// TestHeld checks that a claim does not get a unit that another claim holds, even if the scheduler
// has allocated the unit to both.
func TestHeld(t *testing.T) {
	a, b := claimFor("a", "redis-0"), claimFor("b", "redis-0")
	k := start(t, newInventory(node()), a, b)
	plugin := k.plugin()
	if r := k.prepare(plugin, a); r.Error != "" {
		t.Fatal(r.Error)
	}
	if r := k.prepare(plugin, b); !strings.Contains(r.Error, "another pod or claim holds the unit: default/a") {
		t.Errorf("held twice: %q", r.Error)
	}
}

// TestParameters checks that a claim's parameters replace those of its device class, but only for
// the requests that they name.
func TestParameters(t *testing.T) {
	parameters := func(port string) string {
		return `{"apiVersion": "niclane.dev/v1alpha1", "kind": "LaneParameters", "ports": ["` + port + `"]}`
	}
	c := claimFor("a", "redis-0", "redis-1")
	withParameters(c, "FromClass", parameters("1"))
	withParameters(c, "FromClaim", parameters("2"), "r1")
	i := newInventory(node())
	k := start(t, i, c)
	if r := k.prepare(k.plugin(), c); r.Error != "" {
		t.Fatal(r.Error)
	}
	units := i.Holds()[0].Units
	if units[0].Parameters.Ports[0] != "1" || units[1].Parameters.Ports[0] != "2" {
		t.Errorf("ports %v and %v, want 1 of the class and 2 of the claim", units[0].Parameters.Ports,
			units[1].Parameters.Ports)
	}
}

// TestPublish checks that the published slices change with the inventory.
func TestPublish(t *testing.T) {
	i := newInventory(node())
	k := start(t, i)
	is := func(want string) {
		t.Helper()
		until(t, "published: "+want, func() (bool, string) { got := k.published(); return got == want, got })
	}
	is("n1/redis-0 n1/redis-1 n1/web")
	i.change(func(s *inventory.Snapshot) { s.Classes[0].Units[0].Unhealthy = "the link is down" })
	is("n1/redis-1 n1/web")
	i.change(func(s *inventory.Snapshot) { s.Classes[0].Units[0].Unhealthy = "" })
	is("n1/redis-0 n1/redis-1 n1/web")
	i.change(func(s *inventory.Snapshot) { s.Classes = nil })
	is("")
	s := k.slices()
	if len(s) != 1 || s[0].Spec.Driver != dra.DriverName || ptr.Deref(s[0].Spec.NodeName, "") != "n1" ||
		s[0].Spec.Pool.ResourceSliceCount != 1 {
		t.Errorf("an empty pool: %+v", s)
	}
	if o := s[0].OwnerReferences; len(o) != 1 || o[0].Kind != "Node" || o[0].Name != "n1" || o[0].UID != "node-n1" {
		t.Errorf("owners %+v", o)
	}
	i.change(func(s *inventory.Snapshot) { s.Removed = true })
	until(t, "niclane leaves the node: no pool", func() (bool, string) {
		s := k.slices()
		return len(s) == 0, fmt.Sprint(s)
	})
}

// TestPublishMany checks that devices that do not fit into one slice are published in several
// slices of one generation. If another program deletes or adds a slice, the driver undoes it.
func TestPublishMany(t *testing.T) {
	s := node()
	for n := len(s.Classes[0].Units); n < resourceapi.ResourceSliceMaxDevices+2; n++ {
		u := s.Classes[0].Units[0]
		u.ID = fmt.Sprintf("redis-%d", n)
		s.Classes[0].Units = append(s.Classes[0].Units, u)
	}
	i := newInventory(s)
	k := start(t, i)
	generation := int64(0)
	is := func(what string, newer bool, counts ...int) {
		t.Helper()
		until(t, what, func() (bool, string) {
			all := k.slices()
			var got []int
			ok := true
			for _, s := range all {
				got = append(got, len(s.Spec.Devices))
				ok = ok && s.Spec.Pool.Generation == all[0].Spec.Pool.Generation &&
					s.Spec.Pool.ResourceSliceCount == int64(len(all))
			}
			ok = ok && slices.Equal(got, counts) && (all[0].Spec.Pool.Generation > generation) == newer
			if ok {
				generation = all[0].Spec.Pool.Generation
			}
			return ok, fmt.Sprint(got)
		})
	}
	most := resourceapi.ResourceSliceMaxDevices
	is("published", true, most, 3)
	before := k.slices()
	if err := k.client.ResourceV1().ResourceSlices().Delete(t.Context(), before[1].Name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	is("made again", true, most, 3)
	other := before[1].DeepCopy() // as if another release or program had made it
	other.Name, other.UID = "other", "u-other"
	if _, err := k.client.ResourceV1().ResourceSlices().Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	is("the other taken away", false, most, 3)
	i.change(func(s *inventory.Snapshot) { s.Classes[0].Units = s.Classes[0].Units[:2] })
	is("fewer", false, 3) // the change takes one write, so the generation stays
}

// TestDropped checks that the driver does not write without end to a cluster that drops the fields
// of shared classes.
func TestDropped(t *testing.T) {
	i := newInventory(node())
	client := api()
	writes := make(chan string, 1000)
	drop := func(a clienttesting.Action) (bool, runtime.Object, error) {
		writes <- a.GetVerb()
		s := a.(clienttesting.CreateAction).GetObject().(*resourceapi.ResourceSlice)
		for i := range s.Spec.Devices {
			s.Spec.Devices[i].AllowMultipleAllocations = nil
		}
		return false, nil, nil // the tracker continues with the object
	}
	client.PrependReactor("create", "resourceslices", drop)
	client.PrependReactor("update", "resourceslices", drop)
	k := &kubelet{t: t, dir: t.TempDir(), client: client}
	if err := os.Mkdir(filepath.Join(k.dir, "plugins_registry"), 0o755); err != nil {
		t.Fatal(err)
	}
	k.run(i)
	defer k.stop()
	const rounds = 5
	for range rounds { // another program changes the slice, so that the driver writes
		until(t, "published", func() (bool, string) {
			got := k.published()
			return got == "n1/redis-0 n1/redis-1 n1/web", got
		})
		s := k.slices()[0]
		s.Labels = map[string]string{"somebody": "else"}
		if err := client.Tracker().Update(slicesOf, s, ""); err != nil {
			t.Fatal(err)
		}
		i.change(func(s *inventory.Snapshot) { s.Classes[0].Units[0].Unhealthy = "the link is down" })
		until(t, "published anew", func() (bool, string) {
			got := k.published()
			return got == "n1/redis-1 n1/web", got
		})
		i.change(func(s *inventory.Snapshot) { s.Classes[0].Units[0].Unhealthy = "" })
	}
	// The driver writes once for each change. It may write once more, because it has not seen its own
	// write yet, and the fake server does not refuse old versions.
	if n := len(writes); n > 4*rounds+1 {
		t.Errorf("%d writes", n)
	}
}

// TestHealth checks that the driver reports the devices' health to kubelet, and each change at
// once.
func TestHealth(t *testing.T) {
	i := newInventory(node())
	k := start(t, i)
	conn, services := k.register()
	if !slices.Contains(services, health.DRAResourceHealth_ServiceDesc.ServiceName) {
		t.Errorf("kubelet is told of the services %q", services)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := health.NewDRAResourceHealthClient(conn).NodeWatchResources(ctx, &health.NodeWatchResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	is := func(want string) {
		t.Helper()
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range r.Devices {
			if time.Since(time.Unix(d.LastUpdatedTime, 0)) > time.Minute {
				t.Errorf("%s was looked at at %d", d.Device.DeviceName, d.LastUpdatedTime)
			}
			got = append(got, strings.TrimSpace(fmt.Sprint(d.Device.PoolName, "/", d.Device.DeviceName, " ", d.Health,
				" ", d.Message)))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	is("n1/redis-0 HEALTHY, n1/redis-1 HEALTHY, n1/web HEALTHY")
	i.change(func(s *inventory.Snapshot) { s.Classes[0].Units[0].Unhealthy = "the link is down" })
	is("n1/redis-0 UNHEALTHY the link is down, n1/redis-1 HEALTHY, n1/web HEALTHY")
	i.change(func(s *inventory.Snapshot) { s.Classes[0].Units[0].Unhealthy = "" })
	is("n1/redis-0 HEALTHY, n1/redis-1 HEALTHY, n1/web HEALTHY")
}

// TestStatus checks that the driver writes the lane's state into the claim's status, and updates
// it.
func TestStatus(t *testing.T) {
	i, c := newInventory(node()), claimFor("a", "redis-0")
	k := start(t, i, c)
	if r := k.prepare(k.plugin(), c); r.Error != "" {
		t.Fatal(r.Error)
	}
	data := `{"class":"redis","unit":"redis-0","lane":"redis-0","dev":"eth1","queues":[8,9,10,11]}`
	is := func(status metav1.ConditionStatus, message string) {
		t.Helper()
		until(t, "the claim's status", func() (bool, string) {
			got, err := k.client.ResourceV1().ResourceClaims("default").Get(t.Context(), "a", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			text, _ := json.Marshal(got.Status.Devices)
			if len(got.Status.Devices) != 1 || got.Status.Devices[0].Data == nil ||
				len(got.Status.Devices[0].Conditions) != 1 {
				return false, string(text)
			}
			d := got.Status.Devices[0]
			ready := d.Conditions[0]
			ok := d.Driver == dra.DriverName && d.Pool == "n1" && d.Device == "redis-0" && string(d.Data.Raw) == data &&
				ready.Type == dra.ConditionReady && ready.Status == status && ready.Message == message &&
				!ready.LastTransitionTime.IsZero()
			return ok, string(text)
		})
	}
	is(metav1.ConditionTrue, "the claim has the lane")
	i.change(func(s *inventory.Snapshot) { s.Classes[0].Units[0].Unhealthy = "the link is down" })
	is(metav1.ConditionFalse, "the link is down")
	// niclane leaves the node: the pod goes on without its lane.
	if err := i.Release(t.Context(), string(c.UID)); err != nil {
		t.Fatal(err)
	}
	data = `{"class":"redis","unit":"redis-0"}`
	i.change(func(s *inventory.Snapshot) { s.Removed, s.Classes, s.Device = true, nil, nil })
	is(metav1.ConditionFalse, "the node does not have the lane")
}
