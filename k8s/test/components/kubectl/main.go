// SPDX-License-Identifier: Apache-2.0

// Kubectl is the unmodified kubectl of the newest Kubernetes release. Debian's kubectl is six years
// older.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
)

func main() { os.Exit(cli.Run(cmd.NewDefaultKubectlCommand())) }
