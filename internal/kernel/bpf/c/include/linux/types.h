/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Replaces the host's header. That header includes others from a directory that
 * depends on the host's architecture.
 */
#ifndef NICLANE_LINUX_TYPES_H
#define NICLANE_LINUX_TYPES_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16, __le16, __sum16;
typedef __u32 __be32, __le32, __wsum;
typedef __u64 __be64, __le64;
#define __aligned_u64 __u64 __attribute__((aligned(8)))

#endif
