// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"
)

// version is stamped by the Makefile from git.
var version = "unknown"

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  exactly(0, "none"),
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.printJSON(map[string]string{"niclane": version, "go": runtime.Version()})
			}
			fmt.Fprintf(a.stdout, "niclane %s (%s)\n", version, runtime.Version())
			return nil
		},
	}
}

// inode of a file, as /proc shows namespaces.
func inode(st fs.FileInfo) uint64 {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return 0
}
