// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/niclane/niclane/k8s/test/components"
)

// administrators are the components whose programs Shell adds to PATH.
var administrators = []*components.Component{&components.Kubectl, &components.Helm}

// Shell runs a command line in bash on this host, in the directory dir, as an administrator of the
// cluster does: kubectl and helm are in PATH and reach the API server. It returns the output. An
// error contains the output too.
func (c *Cluster) Shell(dir, line string) (string, error) {
	var path []string
	for _, a := range administrators {
		programs, err := a.Programs(c.ctx)
		if err != nil {
			return "", err
		}
		path = append(path, programs)
	}
	command := exec.CommandContext(c.ctx, "bash", "-c", line)
	command.Dir = dir
	command.Env = append(os.Environ(),
		"PATH="+strings.Join(append(path, os.Getenv("PATH")), ":"),
		"KUBECONFIG="+c.Control.OnDisk(pki+"/admin.conf"),
		// registries have certificates of the cluster's authority
		"SSL_CERT_FILE="+c.Control.OnDisk(pki+"/ca.crt"),
		// kubectl and helm use the test's own caches and settings, not the user's.
		"KUBERC=off", "KUBECACHEDIR="+filepath.Join(c.dir, "kube"))
	for _, name := range []string{"CACHE", "CONFIG", "DATA"} {
		command.Env = append(command.Env, "HELM_"+name+"_HOME="+filepath.Join(c.dir, "helm", strings.ToLower(name)))
	}
	var out []byte
	// bash inherits the network namespace of the thread that starts it.
	err := c.Control.InNetNS(func() (err error) {
		out, err = command.CombinedOutput()
		return err
	})
	if err != nil {
		return string(out), fmt.Errorf("%s: %w\n%s", line, err, out)
	}
	return string(out), nil
}
