// SPDX-License-Identifier: Apache-2.0

// Package apiserver runs an unmodified API server and its etcd for one test, as two processes on
// loopback. There are no nodes, no scheduler and no controllers, and it needs no root. Use it for
// what depends on the API server alone; package cluster runs whole clusters.
package apiserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/niclane/niclane/k8s/test/components"
)

// A Server is a running API server. It ends with its test.
type Server struct {
	// Config, Client and Dynamic have an administrator's rights, and no limit of their own on
	// requests.
	Config  *rest.Config
	Client  kubernetes.Interface
	Dynamic dynamic.Interface

	t               testing.TB
	dir             string
	etcd, apiserver *exec.Cmd
}

// admin is the administrator's token.
const admin = "admin-token"

// Start starts an API server, and waits until it is ready. The present directory must be in this
// module.
func Start(t testing.TB, release components.Component) *Server {
	t.Helper()
	s := &Server{t: t, dir: t.TempDir()}
	if err := s.start(t.Context(), release); err != nil {
		t.Fatalf("API server: %v", err)
	}
	return s
}

func (s *Server) start(ctx context.Context, release components.Component) (err error) {
	etcd, err := components.Etcd.Programs(ctx)
	if err != nil {
		return err
	}
	kubernetesDir, err := release.Programs(ctx)
	if err != nil {
		return err
	}
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"accounts.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
		"tokens":       []byte(admin + `,admin,admin,"system:masters"` + "\n"),
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), text, 0o600); err != nil {
			return err
		}
	}
	if s.etcd, err = s.run("etcd", filepath.Join(etcd, "etcd"), "--data-dir="+filepath.Join(s.dir, "data"),
		"--listen-client-urls=http://"+ports[0], "--advertise-client-urls=http://"+ports[0],
		"--listen-peer-urls=http://"+ports[1], "--initial-advertise-peer-urls=http://"+ports[1],
		"--initial-cluster=default=http://"+ports[1], "--unsafe-no-fsync", "--log-level=error"); err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(ports[2])
	if s.apiserver, err = s.run("kube-apiserver", filepath.Join(kubernetesDir, "kube-apiserver"),
		"--etcd-servers=http://"+ports[0], "--bind-address=127.0.0.1", "--secure-port="+port,
		"--cert-dir="+filepath.Join(s.dir, "certificates"), "--token-auth-file="+filepath.Join(s.dir, "tokens"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+filepath.Join(s.dir, "accounts.key"),
		"--service-account-signing-key-file="+filepath.Join(s.dir, "accounts.key"),
		"--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=Node,RBAC"); err != nil {
		return err
	}
	// The name keeps client-go from giving the connections of one server, with their settings, to the
	// next server of this process: it keeps transports by their TLS settings alone.
	s.Config = &rest.Config{Host: "https://" + ports[2], BearerToken: admin, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true, ServerName: "apiserver-" + port}}
	if s.Client, err = kubernetes.NewForConfig(s.Config); err != nil {
		return err
	}
	if s.Dynamic, err = dynamic.NewForConfig(s.Config); err != nil {
		return err
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		text, err := s.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready: %w: %s", err, text)
		}
	}
}

// freePorts returns addresses on loopback at which no process listens.
func freePorts(n int) (out []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		out = append(out, l.Addr().String())
	}
	return out, nil
}

// run starts a process that ends with the test. Its output goes to NAME.log, and to the test's log
// if the test has failed.
func (s *Server) run(name string, args ...string) (*exec.Cmd, error) {
	log, err := os.Create(filepath.Join(s.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := exec.Command(args[0], args[1:]...)
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return nil, err
	}
	s.t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if !s.t.Failed() {
			return
		}
		text, _ := os.ReadFile(log.Name())
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		s.t.Logf("the end of %s:\n%s", filepath.Base(log.Name()), strings.Join(lines[max(0, len(lines)-15):], "\n"))
	})
	return c, nil
}

// As returns a configuration for another user. The user's groups are those of a service account if
// the name is one's. node is the node that the user's token names, "" for none.
func (s *Server) As(user, node string) *rest.Config {
	c := rest.CopyConfig(s.Config)
	c.Impersonate.UserName = user
	if namespace, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		namespace, _, _ = strings.Cut(namespace, ":")
		c.Impersonate.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace,
			"system:authenticated"}
	}
	if node != "" {
		c.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
	}
	return c
}

// Kubeconfig writes a kubeconfig for a user to a file, and returns its path. server is the address
// of the API server, or of a proxy before it.
func (s *Server) Kubeconfig(server, user string) string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"clusters": [{"name": "c", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}],
"users": [{"name": "c", "user": {"token": %q, "as": %q, "as-groups": ["system:authenticated"]}}],
"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}`, server, admin, user)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// Apply applies the objects of a YAML file (server-side apply).
func (s *Server) Apply(ctx context.Context, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return s.ApplyText(ctx, string(text))
}

// ApplyText applies the objects of a YAML text (server-side apply).
func (s *Server) ApplyText(ctx context.Context, text string) error {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(s.Client.Discovery()))
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := documents.Decode(o); err != nil {
			if err.Error() == "EOF" {
				return nil
			}
			return err
		}
		if len(o.Object) == 0 {
			continue // there is no object between two separators (---)
		}
		kind := o.GroupVersionKind()
		raw, err := o.MarshalJSON()
		if err != nil {
			return err
		}
		// The API server needs a moment before it serves the objects of a new CRD.
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			m, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
			if err == nil {
				var r dynamic.ResourceInterface = s.Dynamic.Resource(m.Resource)
				if o.GetNamespace() != "" {
					r = s.Dynamic.Resource(m.Resource).Namespace(o.GetNamespace())
				}
				force := true
				_, err = r.Patch(ctx, o.GetName(), types.ApplyPatchType, raw,
					metav1.PatchOptions{FieldManager: "test", Force: &force})
			}
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s %s: %w", kind.Kind, o.GetName(), err)
			}
			mapper.Reset()
		}
	}
}

// Spent returns the CPU time that the API server and etcd have taken.
func (s *Server) Spent() (apiserver, etcd time.Duration) {
	s.t.Helper()
	return Spent(s.t, s.apiserver.Process.Pid), Spent(s.t, s.etcd.Process.Pid)
}

// Spent returns the CPU time that a process has taken, in steps of 10 ms.
func Spent(t testing.TB, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	// utime and stime are the fields 14 and 15 of proc_pid_stat(5), in ticks; the name, which may
	// have spaces, ends with the last parenthesis.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// Memory returns the largest resident memory of a process so far, in bytes.
func Memory(t testing.TB, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// PID returns the process ID of the API server.
func (s *Server) PID() int { return s.apiserver.Process.Pid }
