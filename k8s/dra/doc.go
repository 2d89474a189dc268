// SPDX-License-Identifier: Apache-2.0

// Package dra offers a node's lanes by Dynamic Resource Allocation
// (resource.k8s.io/v1, Kubernetes 1.34 and newer), as the driver niclane.dev. It
// publishes the classes that are offered as claims in ResourceSlices, holds what
// the scheduler has allocated when kubelet asks for it, and says in each
// ResourceClaim's status what its pod got.
//
// An exclusive class has a device for each queue set; a shared one is one device
// that many claims are allocated from, each a place or more of its capacity
// "members". A unit that is not healthy is not published; pods that have it
// keep it.
//
// It keeps nothing itself: what is held is in the inventory.Inventory, on disk.
// It refuses parameters that it does not know, and claims for what the node
// has not.
package dra

// DriverName is the driver's in DeviceClasses and ResourceSlices, and the domain
// of the devices' attributes.
const DriverName = "niclane.dev"
