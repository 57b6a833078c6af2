# SPDX-License-Identifier: Apache-2.0
# The extension links libidclient as the compiler finds it (package libidclient-dev). $ORIGIN lets a
# wheel bring its own copy.
from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "idclient._idclient",
            ["src/_idclient.c"],
            libraries=["idclient"],
            extra_compile_args=["-std=c11", "-O2"],
            extra_link_args=["-Wl,-rpath,$ORIGIN"],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
