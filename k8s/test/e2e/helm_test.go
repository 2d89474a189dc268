// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	std "cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/niclane/niclane/k8s/test/cluster"
)

// checkout is the path of the repository's top directory.
const checkout = "../../.."

// checkoutChart is the chart in the checkout, which users write in place of the published one.
const checkoutChart = "k8s/dist/chart/niclane"

// documented runs a command of the pages about Kubernetes, and returns its output. begins is the
// beginning of the command, options are appended to it. The pages must have exactly one such command.
// The published chart is the suite's.
func (s *suite) documented(t testing.TB, begins string, options ...string) (string, error) {
	t.Helper()
	found := map[string]bool{}
	for line := range strings.Lines(pages(t)) {
		if command, ok := strings.CutPrefix(line, "    "); ok && strings.HasPrefix(command, begins) {
			command, _, _ = strings.Cut(command, "  #")
			found[strings.TrimSpace(command)] = true
		}
	}
	if len(found) != 1 {
		t.Fatalf("%q begins %d commands in the pages about Kubernetes, want one", begins, len(found))
	}
	line := strings.Join(append(slices.Collect(maps.Keys(found)), options...), " ")
	line = strings.Replace(line, "oci://REGISTRY/charts/niclane", std.Or(s.chart, checkoutChart), 1)
	out, err := s.Shell(std.Or(s.dir, checkout), line)
	t.Logf("$ %s\n%s", line, out)
	return out, err
}

// pages returns the text of the pages with commands for Kubernetes.
func pages(t testing.TB) string {
	t.Helper()
	all := ""
	for _, name := range []string{"install", "upgrade", "remove"} {
		text, err := os.ReadFile(checkout + "/docs/how-to/kubernetes-" + name + ".md")
		must(t, err)
		all += string(text)
	}
	return all
}

// typed runs a command as documented does, and fails the test if the command fails.
func (s *suite) typed(t testing.TB, begins string, options ...string) {
	t.Helper()
	_, err := s.documented(t, begins, options...)
	must(t, err)
}

// helm installs the chart with a policy on a cluster without niclane, and removes it again. It
// checks that only those objects are left that docs/how-to/kubernetes-remove.md names.
func (s *suite) helm(t *testing.T) {
	must(t, s.Import(s.image))
	t.Cleanup(func() {
		if t.Failed() { // the next part needs a cluster without niclane
			out, err := s.Shell(checkout,
				"helm uninstall niclane -n niclane-system; kubectl delete namespace/niclane-system "+
					"crd/lanepolicies.niclane.dev crd/lanenodes.niclane.dev")
			t.Log(out, err)
		}
	})
	install := "helm install niclane "
	if _, err := s.documented(t, install, "--set", "cni.enabled=maybe"); err == nil ||
		!strings.Contains(err.Error(), "cni/enabled") {
		t.Errorf("cni.enabled=maybe: %v, want an error about cni/enabled", err)
	}
	// Helm applies a chart's CRDs before it checks the values.
	definition := []string{"apiservices v1alpha1.niclane.dev", "customresourcedefinitions lanepolicies.niclane.dev",
		"customresourcedefinitions lanenodes.niclane.dev"}
	s.untilLeft(t, definition...)
	_, spec, _ := strings.Cut(policy, "\nspec:\n")
	must(t, os.WriteFile(s.Control.OnDisk("values.yaml"), []byte("policy:\n"+spec), 0o644))
	s.typed(t, install, "--values", s.Control.OnDisk("values.yaml"), "--set", "metrics.enabled=true")
	s.typed(t, "kubectl --namespace niclane-system rollout status ")
	s.untilAllocatable(t, "redis", 2)
	s.untilChained(t)
	t.Run("pod with a lane", s.lane)
	t.Run("scraped", s.scraped)
	rides := pod("rides", limits("redis"), "")
	running, agent := s.running(t, rides, "rides"), s.agentPod(t).UID
	s.upgraded(t)
	s.typed(t, "kubectl --namespace niclane-system rollout status ")
	if s.agentPod(t).UID == agent {
		t.Error("the upgrade has not replaced the agent")
	}
	s.untilInLane(t, "rides", "redis")
	s.echo(t, running, 1<<10)
	must(t, s.Delete(rides))
	t.Run("pod with a lane after an upgrade", s.lane)
	t.Run("out with pods in lanes", s.outWithPods)
	s.untilLeft(t, append(definition, "namespaces niclane-system", "lanenodes "+cluster.Node, "lanepolicies users")...)
	s.typed(t, install, "--values", s.Control.OnDisk("values.yaml"), "--set", "remove.patience=20s")
	s.untilAllocatable(t, "redis", 2)
	t.Run("out while the agent is down", s.outOfSilentNode)
	must(t, s.Delete(policy))
	out, err := s.Shell(checkout, "kubectl delete lanepolicies --all")
	must(t, err)
	t.Log(out)
	s.typed(t, "helm uninstall niclane ")
	s.nodeIsAsBefore(t)
	t.Run("pod without a lane", s.plain)
	s.typed(t, "kubectl delete namespace/niclane-system ")
	s.untilLeft(t)
	s.nodeIsAsBefore(t)
}

// usersPolicy is a LanePolicy that selects no node: helm uninstall leaves it.
const usersPolicy = "apiVersion: niclane.dev/v1alpha1\nkind: LanePolicy\nmetadata: {name: users}\n" +
	"spec: {nodeSelector: {matchLabels: {role: none}}}\n"

// outWithPods uninstalls niclane while pods are in lanes: nothing is left on the node, and the pods
// go on and end.
func (s *suite) outWithPods(t *testing.T) {
	must(t, s.Apply(usersPolicy))
	template, of := claims("claimed")
	must(t, s.Apply(template))
	s.remove(t, template)
	texts := map[string]string{"leaver": pod("leaver", limits("redis"), `kubernetes.io/ingress-bandwidth: "50M"`),
		"claimer": of("claimer"), "bystander": pod("bystander", "", "")}
	running := map[string]*corev1.Pod{}
	for name, text := range texts {
		s.remove(t, text)
		running[name] = s.running(t, text, name)
	}
	if limits := s.limits(t); len(limits) != 1 {
		t.Errorf("limits of pods: %q, want one", limits)
	}
	s.typed(t, "helm uninstall niclane ")
	s.cardIsAsBefore(t)
	if limits := s.limits(t); len(limits) > 0 {
		t.Errorf("limits of pods are left: %q", limits)
	}
	for _, p := range running {
		s.echo(t, p, 1<<16)
	}
	s.policyCondition(t, "users", "Ready", "False", "Uninstalled")
	claimed, err := s.Client.ResourceV1().ResourceClaims("default").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if c := claimed.Items; len(c) != 1 || len(c[0].Status.Devices) != 1 ||
		c[0].Status.Devices[0].Conditions[0].Status != metav1.ConditionFalse {
		t.Errorf("the claim says that it has its lane: %+v", c)
	}
	must(t, s.Delete(texts["leaver"]))
	const advice = "kubectl delete pod --force ends it"
	if how := s.describe(t.Context(), running["claimer"]); !strings.Contains(how, "LaneRemoved: ") ||
		!strings.Contains(how, advice) {
		t.Errorf("the pod with a claim says %s, want %q", how, advice)
	}
	s.mustShell(t, "kubectl delete pod --force claimer")
	t.Run("pod without a lane", s.plain)
}

// limits returns the limits of pods' bandwidth on the node, as tc shows them.
func (s *suite) limits(t testing.TB) (out []string) {
	t.Helper()
	text, err := s.Node.Output("tc", "qdisc", "show")
	must(t, err)
	for line := range strings.Lines(text) {
		if strings.Contains(line, "tbf") {
			out = append(out, line)
		}
	}
	return out
}

// outOfSilentNode uninstalls niclane while the agent is down. That fails and names the node. When
// the agent is back, the controller ends the removal, and the lanes return.
func (s *suite) outOfSilentNode(t *testing.T) {
	const patch = "kubectl -n niclane-system patch daemonset niclane-agent --type merge -p "
	_, err := s.Shell(checkout, patch+`'{"spec":{"template":{"spec":{"nodeSelector":{"no":"where"}}}}}'`)
	must(t, err)
	s.untilNoAgent(t)
	out, err := s.documented(t, "helm uninstall niclane ")
	if err == nil {
		t.Errorf("uninstalled without the agent's work:\n%s", out)
	}
	log := s.mustShell(t, "kubectl --namespace niclane-system logs job/niclane-remove")
	if !strings.Contains(log, "niclane has not left 1 of 1 nodes") ||
		!strings.Contains(log, cluster.Node+": its agent does not answer, the last time at ") {
		t.Errorf("the Job says:\n%s", log)
	}
	plain := pod("meanwhile", "", "")
	s.remove(t, plain)
	s.running(t, plain, "meanwhile")
	s.mustShell(t, patch+`'{"spec":{"template":{"spec":{"nodeSelector":{"no":null}}}}}'`)
	until(t, time.Minute, "the agent has obeyed", func() (bool, string) {
		n, err := s.Dynamic.Resource(laneNodes).Get(t.Context(), cluster.Node, metav1.GetOptions{})
		must(t, err)
		return holds(n, "Removed", "True", "")
	})
	s.cardIsAsBefore(t)
	s.typed(t, "kubectl --namespace niclane-system scale deployment niclane-controller --replicas=1")
	s.untilAllocatable(t, "redis", 2)
	s.untilChained(t)
	t.Run("pod with a lane", s.lane)
}

func (s *suite) mustShell(t testing.TB, line string) string {
	t.Helper()
	out, err := s.Shell(checkout, line)
	t.Logf("$ %s\n%s", line, out)
	must(t, err)
	return out
}

// upgraded upgrades the chart. The definitions, too: of the releases before and after, only the one
// after has the property that the test looks for.
func (s *suite) upgraded(t *testing.T) {
	const upgrade, has = "helm upgrade --reset-then-reuse-values --take-ownership ", "kubectl get crd lanenodes.niclane.dev -o yaml"
	newer := filepath.Join(t.TempDir(), "chart")
	must(t, os.CopyFS(newer, os.DirFS(filepath.Join(checkout, checkoutChart))))
	crd := filepath.Join(newer, "crds/lanenodes.yaml")
	text, err := os.ReadFile(crd)
	must(t, err)
	const property = "              policyGeneration:\n"
	if !strings.Contains(string(text), property) {
		t.Fatalf("%s has no %q", crd, property)
	}
	must(t, os.WriteFile(crd, []byte(strings.Replace(string(text), property,
		"              inNewerReleases: {type: string}\n"+property, 1)), 0o644))
	other := *s
	other.chart = newer
	if _, err := s.Shell(checkout, strings.Replace(
		"helm upgrade --reset-then-reuse-values niclane CHART -n niclane-system", "CHART", newer, 1)); err == nil ||
		!strings.Contains(err.Error(), "invalid ownership metadata") {
		t.Errorf("without --take-ownership: %v", err)
	}
	other.typed(t, upgrade)
	out, err := s.Shell(checkout, has)
	must(t, err)
	if !strings.Contains(out, "inNewerReleases") {
		t.Errorf("the definition has not been upgraded:\n%s", out)
	}
	s.typed(t, upgrade, "--set", "agent.extraArgs={-v}") // the agent starts again
	if out, err = s.Shell(checkout, has); err != nil || strings.Contains(out, "inNewerReleases") {
		t.Errorf("%v: the definition is not that of the second upgrade:\n%s", err, out)
	}
}

// scraped gets the agent's metrics over TLS: not without a token, not without the right, and with
// both.
func (s *suite) scraped(t *testing.T) {
	const account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: scraper}\n"
	const binding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: scraper}\n" +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: niclane-metrics}\n" +
		"subjects: [{kind: ServiceAccount, name: scraper, namespace: default}]\n"
	s.remove(t, account)
	must(t, s.Apply(account))
	token := func() string {
		r, err := s.Client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "scraper",
			&authentication.TokenRequest{}, metav1.CreateOptions{})
		must(t, err)
		return r.Status.Token
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: s.Control.Dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	get := func(token string, want int) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+cluster.Inside+":9420/metrics", nil)
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := client.Do(r)
		must(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		must(t, err)
		if answer.StatusCode != want {
			t.Errorf("status %d, want %d: %s", answer.StatusCode, want, text)
		}
		return string(text)
	}
	get("", http.StatusUnauthorized)
	get("forged", http.StatusUnauthorized)
	get(token(), http.StatusForbidden)
	s.remove(t, binding)
	must(t, s.Apply(binding))
	// Another token, because the agent remembers its answer for the first one.
	if text := get(token(), http.StatusOK); !strings.Contains(text, `niclane_class_units{class="redis"`) {
		t.Errorf("metrics without the class:\n%s", text)
	}
}

// outByKubectl removes an installation that was made without Helm, by the commands of
// docs/how-to/kubernetes-remove.md, and checks that nothing is left.
func (s *suite) outByKubectl(t *testing.T) {
	// Replace the agent's pod: it was killed often, and kubelet delays its next restart.
	_, err := s.Shell(checkout, "kubectl --namespace niclane-system delete pods --all")
	must(t, err)
	s.agentPod(t)
	s.untilAllocatable(t, "redis", 2)
	text := pod("last", limits("redis"), "")
	s.remove(t, text)
	p := s.running(t, text, "last")
	out := s.mustShell(t, "kubectl --namespace niclane-system exec "+s.agentPod(t).Name+
		" --container agent -- /niclane rollback /run/niclane/kubernetes/kubernetes.yaml")
	if !strings.Contains(out, "back as before") {
		t.Errorf("rollback in the agent's container says %s", out)
	}
	s.cardIsAsBefore(t)
	s.removed(t)
	s.echo(t, p, 1<<10)
}

// removed removes niclane by the commands for kubectl, and checks that nothing is left.
func (s *suite) removed(t *testing.T) {
	s.typed(t, "kubectl apply -f k8s/dist/manifests/niclane-remove.yaml")
	s.typed(t, "kubectl --namespace niclane-system wait --for=condition=Complete ")
	s.cardIsAsBefore(t)
	s.typed(t, "kubectl delete -f k8s/dist/manifests/niclane-remove.yaml ")
	s.untilLeft(t)
	s.nodeIsAsBefore(t)
}

// nodeIsAsBefore waits until the agent has ended, and the node's files and its card are as before
// niclane was installed.
func (s *suite) nodeIsAsBefore(t testing.TB) {
	t.Helper()
	s.untilNoAgent(t)
	until(t, 10*time.Second, "the node is as before niclane (-before +now)", func() (bool, string) {
		diff := cmp.Diff(s.before.files, s.files(t))
		return diff == "", diff
	})
}

// cardIsAsBefore fails the test if something of niclane is on the node that a working agent does
// not need itself.
func (s *suite) cardIsAsBefore(t testing.TB) {
	t.Helper()
	now := s.files(t)
	now["files"] = s.before.files["files"]
	if diff := cmp.Diff(s.before.files, now); diff != "" {
		t.Errorf("node (-before +now):\n%s", diff)
	}
}

// untilChained waits until niclane-cni is in the node's list of CNI plugins.
func (s *suite) untilChained(t testing.TB) {
	t.Helper()
	until(t, time.Minute, "niclane-cni is chained", func() (bool, string) {
		list := s.list(t)
		return strings.Contains(list, "niclane-cni"), list
	})
}

// list returns the text of the node's list of CNI plugins.
func (s *suite) list(t testing.TB) string {
	t.Helper()
	lists, err := filepath.Glob(s.Node.OnDisk("etc/cni/net.d/*.conflist"))
	must(t, err)
	if len(lists) != 1 {
		t.Fatalf("lists of CNI plugins: %v, want one", lists)
	}
	text, err := os.ReadFile(lists[0])
	must(t, err)
	return string(text)
}

// files returns the node's list of CNI plugins, the names of the installed plugins, and the card's
// configuration.
func (s *suite) files(t testing.TB) map[string]any {
	t.Helper()
	var list any
	must(t, json.Unmarshal([]byte(s.list(t)), &list))
	out := map[string]any{"network configuration": list}
	for name, command := range map[string]string{
		"plugins": "ls /opt/cni/bin",
		// without the lock of niclane's commands
		"files": "find /var/lib/niclane /run/niclane /var/lib/kubelet/plugins /var/lib/kubelet/plugins_registry " +
			"/var/lib/kubelet/device-plugins -mindepth 1 2>/dev/null | grep niclane | grep -v '^/run/niclane/lock$'; true",
		"card": strings.ReplaceAll("for o in qdisc class filter; do tc $o show dev DEV; done; ip -details link "+
			"show dev DEV | grep xdp; true", "DEV", cluster.Uplink),
	} {
		text, err := s.Node.Output("/bin/sh", "-c", command)
		must(t, err)
		out[name] = strings.Split(text, "\n")
	}
	return out
}

// passing are kinds of objects that come and go without niclane, and ResourceSlices: kubelet
// deletes those of a driver that has ended only after 30 s (pkg/kubelet/cm/dra/plugin,
// defaultWipingDelay). Cilium has an identity for each set of labels.
var passing = []string{"events", "leases", "endpoints", "endpointslices", "resourceslices", "pods",
	"controllerrevisions", "componentstatuses", "ciliumidentities", "ciliumendpoints"}

// objects returns the cluster's objects, each as its kind, namespace and name. It leaves out the
// kinds in passing.
func (s *suite) objects(t testing.TB) map[string]bool {
	t.Helper()
	lists, err := s.Client.Discovery().ServerPreferredResources()
	// The error is harmless if an API group is just being removed.
	if gone := (*discovery.ErrGroupDiscoveryFailed)(nil); err != nil && !errors.As(err, &gone) {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, l := range lists {
		group, err := schema.ParseGroupVersion(l.GroupVersion)
		must(t, err)
		for _, r := range l.APIResources {
			if !slices.Contains(r.Verbs, "list") || slices.Contains(passing, r.Name) {
				continue
			}
			all, err := s.Dynamic.Resource(group.WithResource(r.Name)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Logf("%s: %v", r.Name, err) // its API group may just be removed
				continue
			}
			for _, o := range all.Items {
				out[strings.TrimSpace(r.Name+" "+strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))] = true
			}
		}
	}
	return out
}

// untilLeft waits until the cluster has only the objects from before niclane, those in left, and
// those that Kubernetes creates in each namespace.
func (s *suite) untilLeft(t testing.TB, left ...string) {
	t.Helper()
	want := maps.Clone(s.before.objects)
	for _, name := range left {
		want[name] = true
		if namespace, ok := strings.CutPrefix(name, "namespaces "); ok {
			want["serviceaccounts "+namespace+"/default"] = true
			want["configmaps "+namespace+"/kube-root-ca.crt"] = true
		}
	}
	until(t, 30*time.Second, "nothing else is in the cluster", func() (bool, string) {
		diff := cmp.Diff(want, s.objects(t))
		return diff == "", diff
	})
}
