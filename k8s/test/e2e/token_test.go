// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/niclane/niclane/k8s/test/cluster"
)

// token tries what a stolen token of an agent can do: with the token of another node, it changes
// neither the claims, nor the slices, nor the LaneNode of this node. With the token of this node, it
// changes only the status of the node's own devices.
func (s *suite) token(t *testing.T) {
	const far = "node9"
	_, err := s.Client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: far}},
		metav1.CreateOptions{})
	must(t, err)
	defer func() { must(t, s.Client.CoreV1().Nodes().Delete(t.Context(), far, metav1.DeleteOptions{})) }()
	template, of := claims("claimed")
	must(t, s.Apply(template))
	s.remove(t, template)
	s.remove(t, of("owner"))
	s.running(t, of("owner"), "owner")
	var claim *resourceapi.ResourceClaim
	until(t, 30*time.Second, "the agent has written the claim's status", func() (bool, string) {
		list, err := s.Client.ResourceV1().ResourceClaims("default").List(t.Context(), metav1.ListOptions{})
		must(t, err)
		for i := range list.Items {
			if c := &list.Items[i]; strings.HasPrefix(c.Name, "owner-") && len(c.Status.Devices) > 0 {
				claim = c
				return true, ""
			}
		}
		return false, s.agentLog(t)
	})
	near, foreign := s.agentOf(t, cluster.Node), s.agentOf(t, far)

	// The status of a device is an agent's own; apart from that, nothing of the claim is.
	device, stolen := claim.DeepCopy(), claim.DeepCopy()
	device.Status.Devices[0].Conditions[0].Message = "by hand"
	stolen.Status.Devices[0].Conditions[0].Message = "by a thief"
	reserved := claim.DeepCopy()
	reserved.Status.ReservedFor = nil
	allocated := claim.DeepCopy()
	allocated.Status.Allocation.Devices.Results[0].Request = "another"
	for name, c := range map[string]struct {
		client kubernetes.Interface
		claim  *resourceapi.ResourceClaim
		why    string
	}{
		"own device": {near, device, ""},
		"device of another": {foreign, stolen, s.claimRefused("driver",
			"of devices of the driver niclane.dev on its own node, "+far)},
		"reservedFor": {near, reserved, s.claimRefused("binding", "an agent changes nothing but devices")},
		"allocation":  {near, allocated, "status.allocation"}, // the API server refuses that itself
	} {
		// The patch has the resource version of no object: the agent writes meanwhile.
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"devices": c.claim.Status.Devices,
			"reservedFor": c.claim.Status.ReservedFor, "allocation": c.claim.Status.Allocation}})
		must(t, err)
		_, err = c.client.ResourceV1().ResourceClaims("default").Patch(t.Context(), c.claim.Name, types.MergePatchType,
			patch, metav1.PatchOptions{}, "status")
		denied(t, name, err, c.why)
	}

	list, err := s.Client.ResourceV1().ResourceSlices().List(t.Context(),
		metav1.ListOptions{FieldSelector: "spec.driver=niclane.dev"})
	must(t, err)
	if len(list.Items) == 0 {
		t.Fatal("no slices")
	}
	err = foreign.ResourceV1().ResourceSlices().Delete(t.Context(), list.Items[0].Name, metav1.DeleteOptions{})
	denied(t, "slice of another node", err, "an agent writes only slices")
	_, err = foreign.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	denied(t, "secrets", err, "cannot list resource")
	body := `{"apiVersion": "niclane.dev/v1alpha1", "kind": "LaneNode", "metadata": {"name": "` + cluster.Node + `"}, ` +
		`"status": {"agent": "forged"}}`
	err = foreign.CoreV1().RESTClient().Patch(types.ApplyPatchType).
		AbsPath("/apis/niclane.dev/v1alpha1/lanenodes/"+cluster.Node+"/status").
		Param("fieldManager", "forger").Param("force", "true").Body([]byte(body)).Do(t.Context()).Error()
	denied(t, "LaneNode of another node", err, "an agent writes only the LaneNode of its own node, "+far)
}

// claimRefused returns what the API server says about a change of a claim's status: in 1.34 the words
// of the chart's policy, from 1.36 its own, about a right that the agent does not have.
func (s *suite) claimRefused(right, policy string) string {
	if s.Name == "v1.34" {
		return policy
	}
	return `requires resource="resourceclaims/` + right + `"`
}

// denied checks that the API server has refused a request for a reason, or taken it if why is "".
func denied(t testing.TB, what string, err error, why string) {
	t.Helper()
	if why == "" {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), why) {
		t.Errorf("%s: %v, want %q", what, err, why)
	}
}

// agentOf returns a client with the token that an agent on a node has.
func (s *suite) agentOf(t testing.TB, node string) kubernetes.Interface {
	t.Helper()
	n, err := s.Client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	must(t, err)
	seconds := int64(600)
	// The token of a pod has the same extra information (authentication.kubernetes.io/node-name).
	r, err := s.Client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "niclane-agent",
		&authentication.TokenRequest{Spec: authentication.TokenRequestSpec{ExpirationSeconds: &seconds,
			BoundObjectRef: &authentication.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: node,
				UID: n.UID}}}, metav1.CreateOptions{})
	must(t, err)
	config := rest.AnonymousClientConfig(s.Config)
	config.BearerToken = r.Status.Token
	c, err := kubernetes.NewForConfig(config)
	must(t, err)
	return c
}
