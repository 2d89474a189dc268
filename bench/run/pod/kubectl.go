// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Kubectl is the access to the cluster.
type Kubectl struct {
	// Config is a kubeconfig; "": kubectl's default (KUBECONFIG, ~/.kube/config, the service
	// account of a pod).
	Config string
	// Context of the kubeconfig; "": the current one.
	Context string
}

// callTime limits a call of kubectl that does not wait for pods.
const callTime = 30 * time.Second

// command returns a kubectl command that runs without a shell, in a process group of its own. Ctrl-C
// must reach only the run: it still needs kubectl to delete what it has created.
func (k Kubectl) command(ctx context.Context, args ...string) *exec.Cmd {
	var all []string
	if k.Config != "" {
		all = append(all, "--kubeconfig="+k.Config)
	}
	if k.Context != "" {
		all = append(all, "--context="+k.Context)
	}
	cmd := exec.CommandContext(ctx, "kubectl", append(all, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = 2 * time.Second
	return cmd
}

// call runs kubectl to its end and returns what it printed.
func (k Kubectl) call(ctx context.Context, input []byte, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTime, fmt.Errorf("no answer within %v", callTime))
	defer cancel()
	return k.run(ctx, input, args...)
}

func (k Kubectl) run(ctx context.Context, input []byte, args ...string) ([]byte, error) {
	cmd := k.command(ctx, args...)
	if input != nil {
		cmd.Stdin = bytes.NewReader(input)
	}
	out, err := cmd.Output()
	return out, called(ctx, args[0], err)
}

// called returns the error of a failed call, in kubectl's own words if there are any.
func called(ctx context.Context, verb string, err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("kubectl is not on the PATH; want the cluster's, or one release from it")
	case ctx.Err() != nil:
		return fmt.Errorf("kubectl %s: %w", verb, context.Cause(ctx))
	case errors.As(err, &exit) && len(exit.Stderr) > 0:
		return fmt.Errorf("kubectl %s: %s", verb, lastLine(exit.Stderr))
	}
	return fmt.Errorf("kubectl %s: %w", verb, err)
}

// lastLine returns the last line of a program's output: kubectl prints warnings first.
func lastLine(text []byte) string {
	s := strings.TrimSpace(string(text))
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// Version returns the cluster's version, such as v1.36.3. It also shows that the cluster can be
// reached.
func (k Kubectl) Version(ctx context.Context) (string, error) {
	out, err := k.call(ctx, nil, "version", "--output=json")
	if err != nil {
		return "", err
	}
	var v struct {
		ServerVersion *struct {
			GitVersion string `json:"gitVersion"`
		} `json:"serverVersion"`
	}
	if err := json.Unmarshal(out, &v); err != nil || v.ServerVersion == nil {
		return "", errors.New("kubectl version: it names no server's version; is there a cluster in its configuration?")
	}
	return v.ServerVersion.GitVersion, nil
}
