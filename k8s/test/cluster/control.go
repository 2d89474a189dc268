// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/niclane/niclane/k8s/test/machine"
)

// pki is the directory on a machine with its certificates and kubeconfigs.
const pki = "/etc/kubernetes"

// startControl starts etcd, the API server, the controller manager and the scheduler, and makes the
// clients of the API server. Authorization is as usual (Node, RBAC).
func (c *Cluster) startControl() (err error) {
	if c.ca, err = newAuthority(); err != nil {
		return err
	}
	dir := c.Control.OnDisk(pki)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), c.ca.pem, 0o644); err != nil {
		return err
	}
	for _, who := range []struct {
		file, user string
		groups     []string
		addresses  []string
	}{
		{"apiserver", "kube-apiserver", nil, []string{service, Outside, "127.0.0.1", "kubernetes.default.svc"}},
		{"kubelet-client", "kube-apiserver-kubelet-client", []string{"system:masters"}, nil},
		{"service-accounts", "service-accounts", nil, nil},
		{"admin", "admin", []string{"system:masters"}, nil},
		{"controllers", "system:kube-controller-manager", nil, nil},
		{"scheduler", "system:kube-scheduler", nil, nil},
	} {
		cred, err := c.ca.issue(who.user, who.groups, who.addresses...)
		if err != nil {
			return err
		}
		if err := cred.write(dir, who.file); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, who.file+".conf"), []byte(c.ca.kubeconfig(cred)), 0o600); err != nil {
			return err
		}
	}
	if err := c.start(c.Control, "etcd", filepath.Join(c.build.etcd, "etcd"),
		"--data-dir=/var/lib/etcd", "--listen-client-urls=http://127.0.0.1:2379",
		"--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--unsafe-no-fsync", "--log-level=warn"); err != nil {
		return err
	}
	if err := c.start(c.Control, "kube-apiserver", c.kubernetes("kube-apiserver",
		"--etcd-servers=http://127.0.0.1:2379", "--bind-address=0.0.0.0", "--secure-port=443",
		"--advertise-address="+Outside,
		"--client-ca-file="+pki+"/ca.crt", "--tls-cert-file="+pki+"/apiserver.crt",
		"--tls-private-key-file="+pki+"/apiserver.key",
		"--kubelet-client-certificate="+pki+"/kubelet-client.crt", "--kubelet-client-key="+pki+"/kubelet-client.key",
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+pki+"/service-accounts.key",
		"--service-account-signing-key-file="+pki+"/service-accounts.key", "--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true")...); err != nil {
		return err
	}
	if err := c.connectClient(); err != nil {
		return err
	}
	err = c.until(2*time.Minute, "API server is ready", func(ctx context.Context) (bool, string) {
		text, err := c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil, fmt.Sprintf("%s %v", text, err)
	})
	if err != nil {
		return err
	}
	if err := c.start(c.Control, "kube-controller-manager", c.kubernetes("kube-controller-manager",
		"--kubeconfig="+pki+"/controllers.conf", "--authentication-kubeconfig="+pki+"/controllers.conf",
		"--authorization-kubeconfig="+pki+"/controllers.conf", "--bind-address=127.0.0.1", "--leader-elect=false",
		"--root-ca-file="+pki+"/ca.crt", "--service-account-private-key-file="+pki+"/service-accounts.key",
		"--use-service-account-credentials=true")...); err != nil {
		return err
	}
	if err := c.start(c.Control, "kube-scheduler", c.kubernetes("kube-scheduler",
		"--kubeconfig="+pki+"/scheduler.conf", "--authentication-kubeconfig="+pki+"/scheduler.conf",
		"--authorization-kubeconfig="+pki+"/scheduler.conf", "--bind-address=127.0.0.1",
		"--leader-elect=false")...); err != nil {
		return err
	}
	// The API server admits no pod before the service account exists.
	return c.until(time.Minute, "there is a service account for pods", func(ctx context.Context) (bool, string) {
		_, err := c.Client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// connectClient makes clients with an administrator's rights. They connect to the API server from
// the control plane's machine.
func (c *Cluster) connectClient() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Control.OnDisk(pki+"/admin.conf"))
	if err != nil {
		return err
	}
	config.Dial = c.Control.Dial
	config.QPS, config.Burst = 200, 400
	c.Config = config
	if c.Client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	c.Dynamic, err = dynamic.NewForConfig(config)
	return err
}

// kubernetes returns the command line of a Kubernetes component, with the release's feature gates.
func (c *Cluster) kubernetes(name string, args ...string) []string {
	args = append([]string{filepath.Join(c.build.kubernetes, name)}, args...)
	if c.FeatureGates != "" {
		args = append(args, "--feature-gates="+c.FeatureGates)
	}
	return args
}

// start starts a daemon on a machine. Its output goes to the file NAME.log.
func (c *Cluster) start(m *machine.Machine, name string, args ...string) error {
	log, err := os.OpenFile(filepath.Join(c.dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	c.daemons[name], err = m.Start(machine.Command{Args: args}, nil, log)
	return err
}
