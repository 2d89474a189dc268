// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestScrapers checks who gets the metrics: a user whom the API server knows and allows. It also
// checks that the API server is asked once a minute about a token.
func TestScrapers(t *testing.T) {
	client := fake.NewSimpleDynamicClient(runtime.NewScheme())
	asked, broken := 0, false
	client.PrependReactor("create", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if broken {
			return true, nil, errors.New("away")
		}
		u := a.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured).DeepCopy()
		asked++
		switch a.GetResource().Resource {
		case "tokenreviews":
			token, _, _ := unstructured.NestedString(u.Object, "spec", "token")
			u.Object["status"] = map[string]any{"authenticated": token != "forged",
				"user": map[string]any{"username": token, "groups": []any{"g"}}}
		case "subjectaccessreviews":
			user, _, _ := unstructured.NestedString(u.Object, "spec", "user")
			path, _, _ := unstructured.NestedString(u.Object, "spec", "nonResourceAttributes", "path")
			u.Object["status"] = map[string]any{"allowed": user == "prometheus" && path == "/metrics"}
		}
		return true, u, nil
	})
	now := time.Now()
	v := &reviewer{client: client, log: slog.New(slog.DiscardHandler), now: func() time.Time { return now },
		next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })}
	get := func(path, token string) int {
		r := httptest.NewRequest("GET", path, nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		v.ServeHTTP(w, r)
		return w.Code
	}
	for _, c := range []struct {
		path, token string
		want, asked int
	}{
		{"/healthz", "prometheus", http.StatusNotFound, 0},
		{"/metrics", "", http.StatusUnauthorized, 0},
		{"/metrics", "forged", http.StatusUnauthorized, 1},
		{"/metrics", "pod", http.StatusForbidden, 2},
		{"/metrics", "prometheus", http.StatusOK, 2},
		{"/metrics", "prometheus", http.StatusOK, 0},
		{"/metrics", "pod", http.StatusForbidden, 0},
	} {
		before := asked
		if got := get(c.path, c.token); got != c.want || asked-before != c.asked {
			t.Errorf("%s, %q: %d after %d questions, want %d after %d", c.path, c.token, got, asked-before, c.want, c.asked)
		}
	}
	broken = true
	if got := get("/metrics", "prometheus"); got != http.StatusOK {
		t.Errorf("a known scraper while the API server is away: %d", got)
	}
	now = now.Add(2 * remembered)
	if got := get("/metrics", "prometheus"); got != http.StatusServiceUnavailable {
		t.Errorf("later: %d", got)
	}
}
