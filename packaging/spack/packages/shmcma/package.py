# SPDX-License-Identifier: BSD-2-Clause
#
# Spack's recipe. Until there is a release, the source is the file that `make dist` writes; in its directory:
#
#   spack repo add packaging/spack
#   spack install --no-checksum shmcma

import os

from spack.package import *


class Shmcma(AutotoolsPackage):
    """libfabric provider for the processes of one user on one machine: small messages go through shared
    memory, large ones are copied once, by cross memory attach."""

    manual_download = True
    url = f"file://{os.getcwd()}/shmcma-0.1.0.tar.gz"

    license("BSD-2-Clause")

    version("0.1.0")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("libfabric@1.17:")

    # A provider that was configured into another prefix than libfabric's is found by FI_PROVIDER_PATH.
    def configure_args(self):
        return ["--disable-tests", "MPICC="]

    def setup_run_environment(self, env):
        env.prepend_path("FI_PROVIDER_PATH", self.prefix.lib.libfabric)
        env.set("OMPI_MCA_mca_base_param_files", self.prefix.share.shmcma.join("openmpi-mca-params.conf"))
