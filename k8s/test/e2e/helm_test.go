// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/niclane/niclane/k8s/test/cluster"
)

// checkout is the path of the repository's top directory.
const checkout = "../../.."

// documented runs a command that docs/kubernetes.md contains, and returns its output. begins is the
// beginning of the command, options are appended to it. The document must have exactly one such
// command.
func (s *suite) documented(t testing.TB, begins string, options ...string) (string, error) {
	t.Helper()
	text, err := os.ReadFile(checkout + "/docs/kubernetes.md")
	must(t, err)
	found := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if command, ok := strings.CutPrefix(line, "    "); ok && strings.HasPrefix(command, begins) {
			command, _, _ = strings.Cut(command, "  #")
			found[strings.TrimSpace(command)] = true
		}
	}
	if len(found) != 1 {
		t.Fatalf("docs/kubernetes.md: %q begins %d commands, want one", begins, len(found))
	}
	line := strings.Join(append(slices.Collect(maps.Keys(found)), options...), " ")
	out, err := s.Shell(checkout, line)
	t.Logf("$ %s\n%s", line, out)
	return out, err
}

// typed runs a command as documented does, and fails the test if the command fails.
func (s *suite) typed(t testing.TB, begins string, options ...string) {
	t.Helper()
	_, err := s.documented(t, begins, options...)
	must(t, err)
}

// helm installs the chart with a policy on a cluster without niclane, and removes it again. It
// checks that only those objects are left that docs/kubernetes.md names.
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
	s.typed(t, "kubectl apply --server-side --force-conflicts -f ")
	s.typed(t, "helm upgrade --reset-then-reuse-values niclane ")
	s.typed(t, "kubectl --namespace niclane-system rollout status ")
	t.Run("pod with a lane after an upgrade", s.lane)
	s.typed(t, "kubectl delete lanepolicies --all")
	s.untilAllocatable(t, "redis", 0)
	s.typed(t, "helm upgrade niclane ")
	s.typed(t, "kubectl --namespace niclane-system rollout status ")
	s.nodeIsAsBefore(t)
	t.Run("pod without a lane", s.plain)
	s.typed(t, "helm uninstall niclane ")
	s.untilLeft(t, append(definition, "namespaces niclane-system", "lanenodes "+cluster.Node)...)
	s.typed(t, "kubectl delete namespace/niclane-system ")
	s.untilLeft(t)
	s.nodeIsAsBefore(t)
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
// docs/kubernetes.md, and checks that nothing is left.
func (s *suite) outByKubectl(t *testing.T) {
	const manifests = "k8s/dist/manifests/niclane-nri.yaml"
	// Replace the agent's pod: it was killed often, and kubelet delays its next restart.
	_, err := s.Shell(checkout, "kubectl --namespace niclane-system delete pods --all")
	must(t, err)
	s.agentPod(t)
	s.untilAllocatable(t, "redis", 2)
	s.typed(t, "kubectl delete lanepolicies --all")
	// It is not enough to wait until no units are allocatable: this is also so without an agent.
	until(t, time.Minute, "the lanes have gone", func() (bool, string) {
		diff := cmp.Diff(s.before.files["card"], s.files(t)["card"])
		return diff == "", diff + s.agentLog(t)
	})
	for _, line := range []string{"kubectl apply --server-side -f " + manifests, "kubectl delete -f " + manifests} {
		out, err := s.Shell(checkout, line)
		must(t, err)
		t.Logf("$ %s\n%s", line, out)
		if strings.HasPrefix(line, "kubectl apply") {
			s.typed(t, "kubectl --namespace niclane-system rollout status ")
		}
	}
	s.untilLeft(t)
	s.nodeIsAsBefore(t)
}

// nodeIsAsBefore fails the test if the node's files or its card differ from those before niclane
// was installed.
func (s *suite) nodeIsAsBefore(t testing.TB) {
	t.Helper()
	if diff := cmp.Diff(s.before.files, s.files(t)); diff != "" {
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
	text, err := os.ReadFile(s.Node.OnDisk("etc/cni/net.d/10-test.conflist"))
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
// defaultWipingDelay).
var passing = []string{"events", "leases", "endpoints", "endpointslices", "resourceslices", "pods",
	"controllerrevisions", "componentstatuses"}

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
