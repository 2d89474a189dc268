// SPDX-License-Identifier: Apache-2.0

// Kubectl is Kubernetes' command, unmodified, of the newest release. Debian's is six years
// older.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
)

func main() { os.Exit(cli.Run(cmd.NewDefaultKubectlCommand())) }
