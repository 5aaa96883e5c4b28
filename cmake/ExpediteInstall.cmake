# `cmake --install BUILD --prefix PREFIX`. The program finds the rest from its own place (expedite/base/installation.h).
install(TARGETS expedite RUNTIME)
install(PROGRAMS tools/lab tools/plot_metrics.py tools/plot_trace.py tools/plot_validation.py
  DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/expedite)
install(FILES tools/inputs.py tools/svg.py DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/expedite)
install(DIRECTORY configs data DESTINATION ${CMAKE_INSTALL_DATADIR}/expedite)
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})

# What the program says of itself: written when it is installed, by the program that is.
function(install_printed name arguments destination)
  install(CODE "
    execute_process(COMMAND \"$<TARGET_FILE:expedite>\" ${arguments} COMMAND_ERROR_IS_FATAL ANY
      OUTPUT_FILE \"${CMAKE_BINARY_DIR}/${name}\")")
  install(FILES ${CMAKE_BINARY_DIR}/${name} DESTINATION ${destination} ${ARGN})
endfunction()
install_printed(expedite.1 man-page ${CMAKE_INSTALL_MANDIR}/man1)
install_printed(expedite.bash "completion bash" ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME expedite)
install_printed(_expedite "completion zsh" ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
