// SPDX-License-Identifier: Apache-2.0

// Package extack makes netlink errors readable: the errno and the kernel's own text, without
// the library's wording. It does not interpret them.
package extack

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
)

// Error reduces a netlink error to its errno and the kernel's text (extended acknowledgement),
// if the kernel sent one. errors.Is still finds the errno. Error returns other errors unchanged.
func Error(err error) error {
	var op *netlink.OpError
	if !errors.As(err, &op) || op.Err == nil {
		return err
	}
	if op.Message == "" {
		return op.Err
	}
	return fmt.Errorf("%w: %s", op.Err, op.Message)
}
