// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// scrapes is the largest number of connections of scrapers.
const scrapes = 16

// serveScrapes serves /metrics over TLS until ctx ends, to clients that the API server allows to
// read them.
func (a *Agent) serveScrapes(ctx context.Context, h http.Handler) error {
	if a.o.Scrapes == "" {
		<-ctx.Done()
		return nil
	}
	cert, err := selfSigned(a.o.Node, time.Now())
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	l, err := net.Listen("tcp", a.o.Scrapes)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	s := &http.Server{
		Handler:           &reviewer{client: a.o.Client, log: a.o.Log, next: h, now: time.Now},
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}},
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(a.o.Log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.ServeTLS(netutil.LimitListener(l, scrapes), "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// selfSigned returns a certificate for this run of the agent. Scrapers do not check it, as they do
// not check kubelet's: they prove who they are by their token.
func selfSigned(node string, now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: node},
		DNSNames: []string{node}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, nil
}

// remembered is how long an answer of the API server about a token is valid. maxTokens is the largest
// number of such answers.
const (
	remembered = time.Minute
	maxTokens  = 64
)

// A reviewer asks the API server who has a request's bearer token (TokenReview), and whether this
// user may get /metrics (SubjectAccessReview), as kubelet does.
type reviewer struct {
	client dynamic.Interface
	log    *slog.Logger
	next   http.Handler
	now    func() time.Time

	mu     sync.Mutex
	tokens map[[sha256.Size]byte]verdict
}

type verdict struct {
	code int // an HTTP status; 200: allowed
	till time.Time
}

func (v *reviewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/metrics" {
		http.NotFound(w, r)
		return
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "want a bearer token", http.StatusUnauthorized)
		return
	}
	code, err := v.review(r.Context(), token)
	if err != nil {
		v.log.Warn("a scraper cannot be checked", "error", err)
		http.Error(w, "the API server does not answer", http.StatusServiceUnavailable)
		return
	}
	if code != http.StatusOK {
		http.Error(w, "want the right to get /metrics", code)
		return
	}
	v.next.ServeHTTP(w, r)
}

// review returns the HTTP status for a token. It asks the API server about one token at a time.
func (v *reviewer) review(ctx context.Context, token string) (int, error) {
	key := sha256.Sum256([]byte(token))
	v.mu.Lock()
	defer v.mu.Unlock()
	if known, ok := v.tokens[key]; ok && v.now().Before(known.till) {
		return known.code, nil
	}
	code, err := v.ask(ctx, token)
	if err != nil {
		return 0, err
	}
	if v.tokens == nil || len(v.tokens) >= maxTokens {
		v.tokens = map[[sha256.Size]byte]verdict{}
	}
	v.tokens[key] = verdict{code, v.now().Add(remembered)}
	return code, nil
}

func (v *reviewer) ask(ctx context.Context, token string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	who := &authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: token}}
	err := v.create(ctx, authentication.SchemeGroupVersion.WithKind("TokenReview"), "tokenreviews", who)
	if err != nil {
		return 0, err
	}
	if !who.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := who.Status.User
	may := &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{User: user.Username,
		UID: user.UID, Groups: user.Groups, Extra: map[string]authorization.ExtraValue{},
		NonResourceAttributes: &authorization.NonResourceAttributes{Path: "/metrics", Verb: "get"}}}
	for k, values := range user.Extra {
		may.Spec.Extra[k] = authorization.ExtraValue(values)
	}
	err = v.create(ctx, authorization.SchemeGroupVersion.WithKind("SubjectAccessReview"), "subjectaccessreviews", may)
	if err != nil {
		return 0, err
	}
	if !may.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

// create sends a review, and fills in the answer.
func (v *reviewer) create(ctx context.Context, kind schema.GroupVersionKind, resource string, review any) error {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(review)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: m}
	u.SetGroupVersionKind(kind)
	answer, err := v.client.Resource(kind.GroupVersion().WithResource(resource)).Create(ctx, u, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(answer.Object, review)
}
